//! Runs the fuzz targets for a while each, on a stable toolchain: `make fuzz`.

use std::{
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
    process::ExitCode,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use clap::Parser;
use ropeway_fuzz_bodies::{Budget, Failure, TARGETS, Target, explore, run_once};

/// Runs the fuzz targets.
#[derive(Parser)]
struct Options {
    /// Seconds for each target.
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    /// Seed; the same one runs the same inputs. Another one each time if it is not given.
    #[arg(long)]
    seed: Option<u64>,
    /// Only this target.
    #[arg(long)]
    target: Option<String>,
    /// Runs one input from a file and nothing else; needs `--target`.
    #[arg(long, requires = "target")]
    replay: Option<PathBuf>,
}

fn main() -> ExitCode {
    let options = Options::parse();
    let wanted = |target: &&Target| options.target.as_ref().is_none_or(|name| name == target.name);
    let targets: Vec<Target> = TARGETS.iter().filter(wanted).copied().collect();
    if targets.is_empty() {
        say(&format!("there is no such target; there are {}", TARGETS.map(|target| target.name).join(", ")));
        return ExitCode::FAILURE;
    }
    let good = match &options.replay {
        Some(file) => replay(&targets[0], file),
        None => run_all(targets, &options),
    };
    if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn replay(target: &Target, file: &Path) -> bool {
    match fs::read(file).map_err(|error| error.to_string()).and_then(|input| run_once(target, &input)) {
        Ok(_) => say(&format!("{}: {} is taken without complaint", target.name, file.display())),
        Err(message) => {
            say(&format!("{}: {message}", target.name));
            return false;
        }
    }
    true
}

/// Runs the targets, as many at once as there are processors.
fn run_all(targets: Vec<Target>, options: &Options) -> bool {
    let random = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64);
    let seed = options.seed.unwrap_or_else(random);
    let budget = Budget::Time(Duration::from_secs(options.seconds));
    let (targets, next, failed) = (Arc::new(targets), Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let workers = thread::available_parallelism().map_or(1, usize::from).min(targets.len());
    let watched: Vec<Arc<Watched>> = (0..workers).map(|_| Arc::default()).collect();
    let running: Vec<_> = watched
        .iter()
        .map(|watched| {
            let (targets, next, failed) = (Arc::clone(&targets), Arc::clone(&next), Arc::clone(&failed));
            let watched = Arc::clone(watched);
            thread::spawn(move || {
                while let Some(target) = targets.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let explored = explore(target, budget, seed, &mut |input| watched.begin(target, input));
                    watched.end();
                    match explored {
                        Ok(explored) => say(&format!(
                            "{:<8} seed {seed}: {} inputs, {} outcomes",
                            target.name, explored.runs, explored.outcomes
                        )),
                        Err(failure) => {
                            failed.fetch_add(1, Ordering::Relaxed);
                            report(target, seed, &failure);
                        }
                    }
                }
            })
        })
        .collect();
    while running.iter().any(|worker| !worker.is_finished()) {
        thread::sleep(Duration::from_millis(100));
        if let Some((target, input)) = watched.iter().find_map(|watched| watched.hangs()) {
            let message = format!("still running after {} s", HANG.as_secs());
            report(&target, seed, &Failure { input, message, runs: 0 });
            return false;
        }
    }
    let died = running.into_iter().filter_map(|worker| worker.join().err()).count();
    died == 0 && failed.load(Ordering::Relaxed) == 0
}

/// What a worker is at, for whoever waits for it.
#[derive(Default)]
struct Watched(Mutex<Option<(Instant, Target, Vec<u8>)>>);

impl Watched {
    fn begin(&self, target: &Target, input: &[u8]) {
        let mut now = self.lock();
        match now.as_mut() {
            Some((begun, _, kept)) => {
                *begun = Instant::now();
                kept.clear();
                kept.extend_from_slice(input);
            }
            None => *now = Some((Instant::now(), *target, input.to_vec())),
        }
    }

    fn end(&self) {
        *self.lock() = None;
    }

    fn hangs(&self) -> Option<(Target, Vec<u8>)> {
        let now = self.lock();
        now.as_ref().filter(|(begun, ..)| begun.elapsed() > HANG).map(|(_, target, input)| (*target, input.clone()))
    }

    fn lock(&self) -> MutexGuard<'_, Option<(Instant, Target, Vec<u8>)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Says what broke and leaves the input where cargo-fuzz would.
fn report(target: &Target, seed: u64, failure: &Failure) {
    let hex: String = failure.input.iter().map(|byte| format!("{byte:02x}")).collect();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../artifacts").join(target.name);
    let file = folder.join(format!("crash-{seed:016x}"));
    let kept = fs::create_dir_all(&folder).and_then(|()| fs::write(&file, &failure.input));
    say(&format!("{} seed {seed}: after {} inputs: {}\ninput: {hex}", target.name, failure.runs, failure.message));
    match kept {
        Ok(()) => say(&format!("again: make fuzz FUZZ_ARGS='--target {} --replay {}'", target.name, file.display())),
        Err(error) => say(&format!("{} cannot be written: {error}", file.display())),
    }
}

fn say(line: &str) {
    // Nobody is left to tell if this fails.
    let _ = writeln!(io::stdout(), "{line}");
}

/// Time after which one input hangs: they take less than a millisecond.
const HANG: Duration = Duration::from_secs(20);
