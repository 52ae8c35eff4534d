//! Curves of precision and recall, and sound as WAV.

use rushlight_core::{Error, Result};

/// Largest number of thresholds of a curve: TensorBoard's writers keep to it.
pub const MAX_THRESHOLDS: usize = 127;

/// Precision and recall of a binary classifier at rising thresholds, with the counts behind them.
///
/// ```
/// # mod rushlight { pub use rushlight_train as train; }
/// use rushlight::train::loggers::tensorboard::PrCurve;
/// let curve = PrCurve::new(&[1.0, 0.0, 1.0], &[0.9, 0.2, 0.4], 3, None)?;
/// assert_eq!(curve.recall(), [1.0, 0.5, 0.0]);
/// # Ok::<(), rushlight_core::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct PrCurve {
    /// True and false positives, true and false negatives, precision, recall: each by threshold.
    pub(super) rows: [Vec<f64>; 6],
}

impl PrCurve {
    /// The curve of labels (0 or 1) and predictions (from 0 to 1) at `thresholds` thresholds, at most 127. `weights`
    /// are those of the samples.
    pub fn new(labels: &[f64], predictions: &[f64], thresholds: usize, weights: Option<&[f64]>) -> Result<Self> {
        let (count, sizes) = (labels.len(), [predictions.len(), weights.map_or(labels.len(), <[f64]>::len)]);
        if sizes != [count; 2] {
            return Err(Error::value(format!(
                "pr_curve: {count} labels, {} predictions, {} weights",
                sizes[0], sizes[1]
            )));
        }
        if thresholds < 2 {
            return Err(Error::value("pr_curve: at least two thresholds are needed"));
        }
        if let Some(wrong) = predictions.iter().find(|p| !(0.0..=1.0).contains(*p)) {
            return Err(Error::value(format!("pr_curve: a prediction is {wrong}; they are from 0 to 1")));
        }
        let thresholds = thresholds.min(MAX_THRESHOLDS);
        let [mut positive, mut negative] = [vec![0.0; thresholds], vec![0.0; thresholds]];
        for (i, (label, prediction)) in labels.iter().zip(predictions).enumerate() {
            let weight = weights.map_or(1.0, |weights| weights[i]);
            let bucket = (prediction * (thresholds - 1) as f64).floor() as usize;
            positive[bucket] += label * weight;
            negative[bucket] += (1.0 - label) * weight;
        }
        // What is at or above a threshold.
        for counts in [&mut positive, &mut negative] {
            for i in (0..thresholds - 1).rev() {
                counts[i] += counts[i + 1];
            }
        }
        let rest = |counts: &[f64]| counts.iter().map(|c| counts[0] - c).collect::<Vec<f64>>();
        let (true_negative, false_negative) = (rest(&negative), rest(&positive));
        let share = |others: &[f64]| {
            positive.iter().zip(others).map(|(hit, other)| hit / (hit + other).max(1e-7)).collect::<Vec<f64>>()
        };
        let (precision, recall) = (share(&negative), share(&false_negative));
        Ok(Self { rows: [positive, negative, true_negative, false_negative, precision, recall] })
    }

    /// A curve by its rows: true and false positives, true and false negatives, precision, recall.
    pub fn from_rows(rows: [Vec<f64>; 6]) -> Result<Self> {
        if rows[0].is_empty() || rows.iter().any(|row| row.len() != rows[0].len()) {
            let sizes: Vec<usize> = rows.iter().map(Vec::len).collect();
            return Err(Error::value(format!("pr_curve: six rows of one length are needed, not {sizes:?}")));
        }
        Ok(Self { rows })
    }

    /// Precision by threshold.
    pub fn precision(&self) -> &[f64] {
        &self.rows[4]
    }

    /// Recall by threshold.
    pub fn recall(&self) -> &[f64] {
        &self.rows[5]
    }

    /// True positives, false positives, true negatives and false negatives by threshold.
    pub fn counts(&self) -> [&[f64]; 4] {
        std::array::from_fn(|i| &self.rows[i][..])
    }
}

/// Samples from -1 to 1 as a WAV file of 16-bit integers. Those of several channels are interleaved.
pub fn wav(samples: &[f32], channels: usize, sample_rate: u32) -> Result<Vec<u8>> {
    let wrong = |what: String| Error::value(format!("audio: {what}"));
    let (Ok(channels), true) = (u16::try_from(channels), channels > 0) else {
        return Err(wrong(format!("{channels} channels")));
    };
    if sample_rate == 0 || !samples.len().is_multiple_of(usize::from(channels)) {
        return Err(wrong(format!("{} samples in {channels} channels at {sample_rate} Hz", samples.len())));
    }
    let frame = 2 * channels;
    let (Ok(bytes), Some(rate)) = (u32::try_from(2 * samples.len() + 36), sample_rate.checked_mul(u32::from(frame)))
    else {
        return Err(wrong(format!("{} samples are too many for a WAV file", samples.len())));
    };
    let mut file = Vec::with_capacity(bytes as usize + 8);
    file.extend(b"RIFF");
    file.extend(bytes.to_le_bytes());
    file.extend(b"WAVEfmt ");
    file.extend(16u32.to_le_bytes());
    // Plain integers.
    file.extend(1u16.to_le_bytes());
    file.extend(channels.to_le_bytes());
    file.extend(sample_rate.to_le_bytes());
    file.extend(rate.to_le_bytes());
    file.extend(frame.to_le_bytes());
    file.extend(16u16.to_le_bytes());
    file.extend(b"data");
    file.extend((bytes - 36).to_le_bytes());
    for sample in samples {
        let sample = (sample.clamp(-1.0, 1.0) * 32767.0) as i16;
        file.extend(sample.to_le_bytes());
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn curves_of_weighted_samples() {
        let curve = PrCurve::new(&[0.0, 1.0, 1.0, 0.0], &[0.0, 0.4, 1.0, 0.6], 5, Some(&[1.0, 2.0, 1.0, 0.5])).unwrap();
        let [tp, fp, tn, fal] = curve.counts();
        assert_eq!(tp, [3.0, 3.0, 1.0, 1.0, 1.0]);
        assert_eq!(fp, [1.5, 0.5, 0.5, 0.0, 0.0]);
        assert_eq!((tn[1], fal[2]), (1.0, 2.0));
        assert_eq!((curve.precision()[3], curve.recall()[0]), (1.0, 1.0));
        for (labels, predictions, thresholds) in [(1, &[0.5, 0.5][..], 5), (1, &[1.5], 5), (1, &[0.5], 1)] {
            assert!(PrCurve::new(&vec![1.0; labels], predictions, thresholds, None).is_err());
        }
        assert!(PrCurve::from_rows([vec![1.0], vec![], vec![], vec![], vec![], vec![]]).is_err());
    }

    #[test]
    fn sound() {
        let file = wav(&[0.0, 1.0, -2.0, 0.5], 2, 8000).unwrap();
        assert_eq!((&file[..4], file.len(), &file[24..28]), (&b"RIFF"[..], 52, &8000u32.to_le_bytes()[..]));
        assert_eq!(&file[46..50], [32767i16.to_le_bytes(), (-32767i16).to_le_bytes()].concat());
        assert!(wav(&[0.0], 2, 8000).is_err() && wav(&[0.0], 0, 8000).is_err() && wav(&[0.0], 1, 0).is_err());
    }
}
