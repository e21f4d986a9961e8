//! The thread that makes a network follow its scenario in time, and listens for changes from outside.

use std::{
    collections::VecDeque,
    io,
    iter::Peekable,
    os::unix::net::UnixListener as StdListener,
    sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc},
    thread,
    time::{Duration, Instant},
};

use ropeway_core::sim::{
    Scenario,
    scenario::{Step, Timeline},
};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::{UnixListener, UnixStream},
    runtime,
    sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
    time::{sleep_until, timeout},
};

use super::{
    control::{self, Answer, LINE_BYTES_MAX},
    performer::{ChangeError, Performer},
    wish::Wish,
};
use crate::report::Happening;

/// A network that follows its scenario; dropping it lets things stay as they are.
#[derive(Debug)]
pub(crate) struct Conductor {
    orders: Option<UnboundedSender<Order>>,
    history: Arc<Mutex<History>>,
    thread: Option<thread::JoinHandle<()>>,
}

/// What a conductor is told.
enum Order {
    /// Begin the scenario, from its start.
    Begin(mpsc::Sender<Result<Instant, String>>),
}

/// What happened since the scenario began.
#[derive(Clone, Debug, Default)]
struct History {
    started: Option<Instant>,
    /// What happened or, so far as the emulator was told beforehand, will happen.
    happenings: Vec<(Duration, String)>,
    /// The first change that could not be made.
    failure: Option<String>,
}

impl Conductor {
    /// Starts a conductor, which listens at `listener` from then on.
    pub(super) fn start(scenario: Scenario, performer: Performer, listener: StdListener) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
        let (orders, received) = unbounded_channel();
        let history = Arc::<Mutex<History>>::default();
        let shared = history.clone();
        let work = move || {
            runtime.block_on(async {
                // A socket that cannot be waited on only makes changes from outside impossible.
                let listener = UnixListener::from_std(listener).ok();
                let conducting = Conducting { scenario: &scenario, performer, history: shared, course: None };
                conducting.run(received, listener).await;
            });
        };
        let thread = thread::Builder::new().name("conductor".to_owned()).spawn(work)?;
        Ok(Self { orders: Some(orders), history, thread: Some(thread) })
    }

    /// Begins the scenario anew, from its start: what is so from the start on is so when this returns.
    ///
    /// # Errors
    ///
    /// Why the network cannot be made so, in words.
    pub(crate) fn begin(&self) -> Result<Instant, String> {
        let (answer, answered) = mpsc::channel();
        let sent = self.orders.as_ref().is_some_and(|orders| orders.send(Order::Begin(answer)).is_ok());
        let ended = || "the thread that changes the network has ended".to_owned();
        if sent { answered.recv().map_err(|_| ended())? } else { Err(ended()) }
    }

    /// Tells what has happened since the scenario began, and the first change that could not be made.
    pub(crate) fn history(&self) -> (Vec<Happening>, Option<String>) {
        let history = self.history.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let so_far = history.started.map(|started| started.elapsed()).unwrap_or_default();
        let mut happenings = history.happenings;
        happenings.retain(|(at, _)| *at <= so_far);
        happenings.sort_by_key(|(at, _)| *at);
        (happenings.into_iter().map(|(at, what)| Happening::new(at, what)).collect(), history.failure)
    }
}

impl Drop for Conductor {
    fn drop(&mut self) {
        drop(self.orders.take());
        // A panic of the thread was printed when it happened.
        let _ = self.thread.take().map(thread::JoinHandle::join);
    }
}

/// What the thread has.
struct Conducting<'a> {
    scenario: &'a Scenario,
    performer: Performer,
    history: Arc<Mutex<History>>,
    course: Option<Course<'a>>,
}

/// A scenario under way.
struct Course<'a> {
    start: Instant,
    timeline: Peekable<Timeline<'a>>,
    /// Steps that wait for their time; others were told to the emulator.
    waiting: VecDeque<Step>,
}

impl Conducting<'_> {
    async fn run(mut self, mut orders: UnboundedReceiver<Order>, listener: Option<UnixListener>) {
        loop {
            let next = self.course.as_mut().and_then(Course::next_moment);
            let moment = async {
                match next {
                    Some(moment) => sleep_until(moment.into()).await,
                    None => std::future::pending().await,
                }
            };
            let accepted = async {
                match &listener {
                    Some(listener) => listener.accept().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                order = orders.recv() => match order {
                    Some(Order::Begin(answer)) => {
                        // Who asked may have gone.
                        let _ = answer.send(self.begin().map_err(|error| error.to_string()));
                    }
                    None => return,
                },
                () = moment => self.go_on(),
                stream = accepted => if let Ok((stream, _)) = stream {
                    // One that hangs must not keep the scenario from going on for long.
                    let _ = timeout(CLIENT_MAX, self.serve(stream)).await;
                },
            }
        }
    }

    /// Begins the scenario from its start.
    fn begin(&mut self) -> Result<Instant, ChangeError> {
        self.course = None;
        self.performer.reset()?;
        let mut timeline = self.scenario.timeline().peekable();
        let mut first = Vec::new();
        while let Some(step) = timeline.next_if(|step| step.at.is_zero()) {
            first.push(step);
        }
        let (of_emulator, other): (Vec<Step>, Vec<Step>) =
            first.into_iter().partition(|step| Performer::is_of_emulator(&step.action));
        let mut happenings = Vec::new();
        // These take a while, and the links begin when all else is as it should be.
        for step in other {
            happenings.push((Duration::ZERO, self.performer.step(step, Instant::now())?));
        }
        let start = Instant::now();
        self.performer.restart(start)?;
        for step in of_emulator {
            happenings.push((Duration::ZERO, self.performer.step(step, start)?));
        }
        *self.lock() = History { started: Some(start), happenings, failure: None };
        self.course = Some(Course { start, timeline, waiting: VecDeque::new() });
        Ok(start)
    }

    /// Does what is due, and tells the emulator what is to come.
    fn go_on(&mut self) {
        let Some(course) = &mut self.course else { return };
        let (start, now) = (course.start, course.start.elapsed());
        let mut due = Vec::new();
        while let Some(step) = course.timeline.next_if(|step| step.at <= now + LOOKAHEAD) {
            if Performer::is_of_emulator(&step.action) {
                due.push(step);
            } else {
                course.waiting.push_back(step);
            }
        }
        while let Some(step) = course.waiting.pop_front_if(|step| step.at <= now) {
            due.push(step);
        }
        for step in due {
            let (planned, is_told) = (step.at, Performer::is_of_emulator(&step.action));
            let done = self.performer.step(step, start);
            // What the emulator does, it does at its time; the rest is done now.
            let at = if is_told { planned } else { start.elapsed() };
            self.note(at, done.map(|what| vec![what]));
        }
    }

    /// Answers one request for changes.
    async fn serve(&mut self, stream: UnixStream) -> io::Result<()> {
        let mut stream = BufReader::new(stream);
        let mut line = String::new();
        (&mut stream).take(LINE_BYTES_MAX).read_line(&mut line).await?;
        let answer = match self.fulfil(&line) {
            Ok(done) => Answer::Done(done),
            Err(reason) => Answer::Refused(reason),
        };
        let mut text = serde_json::to_string(&answer)?;
        text.push('\n');
        stream.write_all(text.as_bytes()).await
    }

    fn fulfil(&mut self, line: &str) -> Result<Vec<String>, String> {
        let request = control::parse(line)?;
        // All are understood before the first is done.
        let wishes = request.set.iter().map(|text| Wish::parse(text, self.scenario));
        let mut done = Vec::new();
        for wish in wishes.collect::<Result<Vec<Wish>, String>>()? {
            let fulfilled = self.performer.fulfil(wish).map_err(|error| error.to_string())?;
            if let Some(start) = self.course.as_ref().map(|course| course.start) {
                let told = fulfilled.iter().map(|what| format!("{what} (set from outside)")).collect();
                self.note(start.elapsed(), Ok(told));
            }
            done.extend(fulfilled);
        }
        Ok(done)
    }

    fn note(&self, at: Duration, done: Result<Vec<String>, ChangeError>) {
        let mut history = self.lock();
        match done {
            Ok(done) => history.happenings.extend(done.into_iter().map(|what| (at, what))),
            Err(error) => {
                history.happenings.push((at, format!("FAILED: {error}")));
                history.failure.get_or_insert_with(|| error.to_string());
            }
        }
        // A network that changes for hours keeps the latest; the report says so by its times.
        let excess = history.happenings.len().saturating_sub(HAPPENINGS_MAX);
        history.happenings.drain(..excess);
    }

    fn lock(&self) -> MutexGuard<'_, History> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Course<'_> {
    /// Gives when there is something to do.
    fn next_moment(&mut self) -> Option<Instant> {
        let told = self.timeline.peek().map(|step| step.at.saturating_sub(LOOKAHEAD));
        let waiting = self.waiting.front().map(|step| step.at);
        [told, waiting].into_iter().flatten().min().map(|moment| self.start + moment)
    }
}

/// How long before its time the emulator is told of a change, so that no delay of this thread makes it late.
const LOOKAHEAD: Duration = Duration::from_secs(5);

/// Longest time for one request from outside.
const CLIENT_MAX: Duration = Duration::from_secs(1);

/// Most happenings that are kept; a handover every 15 s fills it in more than two hours.
const HAPPENINGS_MAX: usize = 1000;
