//! A simulated schedule as a picture: one row a rank, bubbles as dots or white.

use super::schedule::{Phase, Schedule};
use super::simulate::Costs;
use rushlight_core::Result;
use std::fmt::Write;

impl Schedule {
    /// The schedule as text: a row for each rank, a column for each unit of time. Cells are PyTorch's notation without
    /// the stage where a rank has one; dots are bubbles.
    pub fn chart(&self, costs: &Costs) -> Result<String> {
        let simulated = self.simulate(costs)?;
        let unit = [costs.forward, costs.input_grad, costs.weight_grad].into_iter().fold(f64::INFINITY, f64::min);
        let unit = if unit > 0.0 && unit.is_finite() { unit } else { 1.0 };
        let single = self.stages() == self.ranks();
        let digits = |n: usize| n.saturating_sub(1).max(1).ilog10() as usize + 1;
        let width = 2 + digits(self.microbatches()) + if single { 0 } else { digits(self.stages()) };
        let columns = (simulated.makespan() / unit).ceil() as usize;
        let mut text = String::new();
        for (rank, times) in simulated.times.iter().enumerate() {
            let mut cells = vec![".".to_string(); columns];
            for (action, start, end) in times {
                let label = match single {
                    true => format!("{}{}", action.phase.letter(), action.microbatch),
                    false => action.to_string(),
                };
                let (first, last) = ((start / unit).round() as usize, (end / unit).round() as usize);
                for (i, cell) in cells.iter_mut().enumerate().take(last.max(first + 1)).skip(first) {
                    *cell = if i == first { label.clone() } else { "-".repeat(label.len()) };
                }
            }
            let _ = write!(text, "rank {rank:>3} |");
            for cell in cells {
                let _ = write!(text, "{cell:^width$}");
            }
            let _ = writeln!(text, "| {} held", simulated.peak[rank]);
        }
        let _ = writeln!(
            text,
            "{}: {} stages on {} ranks, {} microbatches, bubble {:.1} %",
            self.name(),
            self.stages(),
            self.ranks(),
            self.microbatches(),
            100.0 * simulated.bubble()
        );
        Ok(text)
    }

    /// The schedule as an SVG image.
    pub fn svg(&self, costs: &Costs) -> Result<String> {
        const ROW: f64 = 26.0;
        const LEFT: f64 = 60.0;
        let simulated = self.simulate(costs)?;
        let scale = 960.0 / simulated.makespan().max(f64::MIN_POSITIVE);
        let height = ROW * (self.ranks() as f64 + 1.5);
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 1040 {height}\" font-family=\"sans-serif\" \
             font-size=\"11\">\n"
        );
        for (rank, times) in simulated.times.iter().enumerate() {
            let y = ROW * rank as f64 + 4.0;
            let _ = writeln!(svg, "<text x=\"4\" y=\"{:.1}\">rank {rank}</text>", y + 15.0);
            for (action, start, end) in times {
                let colour = match (action.phase, action.stage / self.ranks() % 2) {
                    (Phase::Forward, 0) => "#7aa6e0",
                    (Phase::Forward, _) => "#4f7fc4",
                    (Phase::Backward | Phase::InputGrad, 0) => "#8fca8f",
                    (Phase::Backward | Phase::InputGrad, _) => "#5fa85f",
                    (Phase::WeightGrad, _) => "#e8b96a",
                };
                let (x, w) = (LEFT + start * scale, (end - start) * scale);
                let _ = writeln!(
                    svg,
                    "<rect x=\"{x:.2}\" y=\"{y:.1}\" width=\"{w:.2}\" height=\"22\" fill=\"{colour}\" stroke=\"#333\"/>\
                     <text x=\"{:.2}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
                    x + w / 2.0,
                    y + 15.0,
                    action.microbatch
                );
            }
        }
        let _ = writeln!(
            svg,
            "<text x=\"4\" y=\"{:.1}\">{}: bubble {:.1} %; blue forward, green backward, orange gradients of weights</text>\n</svg>",
            height - 8.0,
            self.name(),
            100.0 * simulated.bubble()
        );
        Ok(svg)
    }
}
