//! The command line of `simulate`.

use std::path::PathBuf;

use clap::Args;

use crate::selection::SelectionArgs;

/// What to simulate, and which results to set beside it.
#[derive(Args, Clone, Debug)]
pub(crate) struct SimulateArgs {
    /// Which cells.
    #[command(flatten)]
    pub(crate) selection: SelectionArgs,
    /// How often each cell is simulated, with another seed each time; the lab's seeds begin at 1 as well, and have the same radio
    #[arg(long, value_name = "NUMBER", default_value_t = 200, value_parser = clap::value_parser!(u64).range(1..=1000))]
    pub(crate) seeds: u64,
    /// Folder of the lab's results, which takes the table; an earlier table is replaced
    #[arg(long, value_name = "DIR", default_value = "docs/lab-results")]
    pub(crate) out: PathBuf,
}

impl SimulateArgs {
    /// Gives the command that repeats this, without what is only of this machine.
    pub(crate) fn command(&self) -> String {
        let mut words = vec!["ropeway-lab simulate".to_owned()];
        words.extend(self.selection.words());
        words.push(format!("--seeds {}", self.seeds));
        words.join(" ")
    }
}
