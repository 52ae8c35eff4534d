use rushlight_core::backend::Engine;
use rushlight_cpu::ENGINE;

#[test]
fn the_host_is_one_device() {
    assert_eq!(ENGINE.count().unwrap(), 1);
    assert!(ENGINE.properties(0).unwrap().multiprocessors > 0);
    assert!(ENGINE.backend(1).is_err());
    assert!(ENGINE.properties(1).is_err());
}
