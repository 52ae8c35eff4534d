//! Learning-rate and batch-size finders.

use crate::support::*;
use rushlight_core::Result;

#[test]
fn a_learning_rate_is_found_and_nothing_changed() -> Result<()> {
    let _turn = alone();
    let mut net = Net::new()?;
    let before = net.bits()?;
    let mut train = loader(96, true)?;
    let found = quiet().build()?.lr_find(&mut net, &mut train, 1e-6, 10.0, 60)?;
    assert_eq!(net.bits()?, before);
    let suggestion = found.suggestion.unwrap();
    assert!((1e-5..5.0).contains(&suggestion), "{found:?}");
    assert!(found.lrs.len() <= 60 && found.lrs.len() == found.losses.len());
    // Training continues from the first batch.
    let first = |loader: &Loader| loader.epoch(0).next().unwrap().map(|(x, _)| x.to_vec::<f32>().unwrap());
    assert_eq!(first(&train)?, first(&loader(96, true)?)?);
    assert!(quiet().build()?.lr_find(&mut net, &mut train, 1.0, 0.1, 10).is_err());
    Ok(())
}

#[test]
fn a_batch_size_is_found() -> Result<()> {
    let _turn = alone();
    let mut net = Net::new()?;
    let before = net.bits()?;
    let mut train = loader(96, true)?;
    assert_eq!(quiet().build()?.scale_batch_size(&mut net, &mut train, 40)?, 32);
    assert_eq!((train.batch_size(), train.len()), (Some(32), Some(3)));
    // 128 samples are more than the dataset has: the search ends with one batch of all.
    assert_eq!(quiet().build()?.scale_batch_size(&mut net, &mut train, 1 << 20)?, 128);
    assert_eq!(net.bits()?, before);
    Ok(())
}
