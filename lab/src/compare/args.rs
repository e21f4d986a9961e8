//! The command line of `compare`.

use std::{env, num::NonZeroUsize, path::PathBuf, time::Duration};

use clap::Args;

use crate::selection::SelectionArgs;

/// What to compare, and how far to go.
#[derive(Args, Clone, Debug)]
pub(crate) struct CompareArgs {
    /// Peers, separated by commas [default: all of lab/peers/peers.toml]
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub(crate) peers: Vec<String>,
    /// Which cells.
    #[command(flatten)]
    pub(crate) selection: SelectionArgs,
    /// How often each cell is run, with another seed each time
    #[arg(long, value_name = "NUMBER", default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=1000))]
    pub(crate) seeds: u64,
    /// Begin no run after this time, such as 40m; the next comparison goes on there
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(crate) budget: Option<Duration>,
    /// Labs side by side, 1 to 4
    #[arg(long, value_name = "NUMBER", default_value = "2", value_parser = jobs)]
    pub(crate) jobs: NonZeroUsize,
    /// Folder of the results; cells that it has from other comparisons stay
    #[arg(long, value_name = "DIR", default_value = "docs/lab-results")]
    pub(crate) out: PathBuf,
    /// Folder of the outcomes of single runs, which are not done again [default: lab-runs beside the build]
    #[arg(long, value_name = "DIR")]
    pub(crate) cache: Option<PathBuf>,
    /// Folder that lab/peers/install filled [default: lab-peers beside the build]
    #[arg(long, value_name = "DIR", env = "LAB_PEERS", hide_env_values = true)]
    pub(crate) installed: Option<PathBuf>,
    /// Folder of the adapters [default: the one the lab was built beside]
    #[arg(long, value_name = "DIR", hide = true)]
    pub(crate) adapters: Option<PathBuf>,
}

impl CompareArgs {
    /// Gives the command that repeats this comparison, without what is only of this machine.
    pub(crate) fn command(&self) -> String {
        let mut words = vec!["ropeway-lab compare".to_owned()];
        if !self.peers.is_empty() {
            words.push(format!("--peers {}", self.peers.join(",")));
        }
        words.extend(self.selection.words());
        words.push(format!("--seeds {} --jobs {}", self.seeds, self.jobs));
        words.join(" ")
    }

    /// Gives the folder of outcomes.
    pub(crate) fn cache(&self) -> PathBuf {
        self.cache.clone().unwrap_or_else(|| beside_the_build("lab-runs"))
    }

    /// Gives the folder that the installer filled.
    pub(crate) fn installed(&self) -> PathBuf {
        self.installed.clone().unwrap_or_else(|| beside_the_build("lab-peers"))
    }

    /// Gives the folder of the adapters.
    pub(crate) fn adapters(&self) -> PathBuf {
        self.adapters.clone().unwrap_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("peers"))
    }
}

/// The program is in a folder of the build's, `target/debug/ropeway-lab`; what is made for it goes beside that folder.
fn beside_the_build(name: &str) -> PathBuf {
    let program = env::current_exe().unwrap_or_default();
    program.ancestors().nth(2).map(|folder| folder.join(name)).unwrap_or_else(|| PathBuf::from(name))
}

fn time(text: &str) -> Result<Duration, String> {
    let wrong = || "write a time with its unit, such as 90s, 40m or 2h".to_owned();
    let (number, unit) = text.split_at(text.len() - text.chars().next_back().map_or(0, char::len_utf8));
    let number: u64 = number.parse().map_err(|_| wrong())?;
    let seconds = match unit {
        "s" => number.checked_mul(1),
        "m" => number.checked_mul(60),
        "h" => number.checked_mul(3600),
        _ => None,
    };
    seconds.map(Duration::from_secs).ok_or_else(wrong)
}

fn jobs(text: &str) -> Result<NonZeroUsize, String> {
    text.parse()
        .ok()
        .filter(|jobs: &NonZeroUsize| jobs.get() <= JOBS_MAX)
        .ok_or_else(|| "write 1, 2, 3 or 4".to_owned())
}

/// As many labs as one machine can hold side by side.
const JOBS_MAX: usize = 4;

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        args: CompareArgs,
    }

    #[test]
    fn the_command_that_repeats_it_has_no_paths_in_it() {
        let words =
            ["compare", "--peers", "libcurl,ropeway", "--scenarios", "elevator", "--budget", "40m", "--out", "/tmp/x"];
        let args = Line::parse_from(words).args;
        assert_eq!(args.budget, Some(Duration::from_secs(2400)));
        let command = "ropeway-lab compare --peers libcurl,ropeway --scenarios elevator --works get-2k,post-10k --seeds 3 --jobs 2";
        assert_eq!(args.command(), command);
    }

    #[test]
    fn times_and_jobs_out_of_range_are_refused() {
        assert!(["40", "m", "", "4x", "é"].into_iter().all(|text| time(text).is_err()));
        assert!(["0", "5", "two"].into_iter().all(|text| jobs(text).is_err()));
    }
}
