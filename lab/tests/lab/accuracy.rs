//! The links are what they are set to.

use ropeway_lab::accuracy::{Measured, measure};

use crate::support::labs;

/// How late single packets are is the machine's doing: `ropeway-lab accuracy` reports it, no test waits for it.
#[test]
fn delay_rate_loss_and_outages_are_as_set() {
    let Some(_labs) = labs() else { return };
    for attempt in 1..=ATTEMPTS {
        let accuracy = measure(1, |_| {}).expect("the machine can run a lab");
        let bad: Vec<&Measured> = accuracy.measured.iter().filter(|line| !line.is_good()).collect();
        if bad.is_empty() {
            return;
        }
        eprintln!("attempt {attempt}: {bad:#?}, {:?}", accuracy.lateness);
    }
    panic!("not accurate in {ATTEMPTS} attempts");
}

/// Attempts, since a machine that is busy with something else delays what is measured.
const ATTEMPTS: u32 = 5;
