//! Memory that idle sessions lend to others: the driver side of an idle session is suspended, its
//! memory moved to the host, when another one needs room, and resumed at its next command.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::time::{Duration, Instant};

use tokio::process::Command;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{sleep, timeout};

use super::{Config, Oversubscribe};
use crate::command::WorkerCommand;
use outboard_control::messages::ToWorker;
use outboard_control::number::Number;
use outboard_control::suspension::Action;

/// How often a session that needs memory checks again.
const CHECKED_EVERY: Duration = Duration::from_millis(100);
/// How long a request for memory waits until a session is idle, beyond the time that counts as
/// idle.
const HOPE: Duration = Duration::from_secs(5);
/// How long a worker may take to say whether it has something to do.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// How long the driver may take for one session.
const LONGEST_SUSPENSION: Duration = Duration::from_secs(300);
/// A session that turned out to have something to do is left alone for so long.
const BUSY: Duration = Duration::from_secs(1);
/// A session that could not be suspended is left alone for so long.
const LEFT_ALONE: Duration = Duration::from_secs(30);
/// A session that cannot be resumed for so long is given up.
const GIVEN_UP: Duration = Duration::from_secs(600);
/// Memory that is left to the host, if the server was not told how much it may use.
const HOST_RESERVE: u64 = 2 << 30;

/// What the supervisor knows of a session's memory.
struct Loan {
    worker: u32,
    /// Bytes of each device, by ordinal.
    held: HashMap<u32, u64>,
    suspended: bool,
    orders: mpsc::UnboundedSender<ToWorker>,
    /// The task that waits to learn whether the session is busy.
    asked: Option<oneshot::Sender<bool>>,
    left_alone_until: Option<Instant>,
}

/// The memory of all sessions.
pub(crate) struct Lending {
    settings: Option<Oversubscribe>,
    /// Suspends and resumes. An earlier server may have left suspended sessions to one that
    /// suspends none.
    helper: Option<WorkerCommand>,
    /// Bytes of each device for all sessions together.
    memory: Option<u64>,
    loans: RefCell<HashMap<u64, Loan>>,
    /// One session is suspended or resumed at a time.
    turn: tokio::sync::Mutex<()>,
}

/// How long a session has not been heard of.
pub(crate) type Idle<'a> = &'a dyn Fn(u64) -> Option<Duration>;

impl Lending {
    pub(crate) fn new(config: &Config) -> Lending {
        let (settings, helper, memory) =
            (config.oversubscribe.clone(), config.helper.clone(), config.memory);
        Lending {
            settings,
            helper,
            memory,
            loans: RefCell::default(),
            turn: tokio::sync::Mutex::new(()),
        }
    }

    /// Waits until no session is being suspended or resumed, and holds that up as long as the
    /// result lives.
    pub(crate) async fn hold(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.turn.lock().await
    }

    /// A session has been taken over, that holds so much of each device. One that may be suspended
    /// counts as if it were: to resume one that is not does no harm.
    pub(crate) fn take_over(&self, session: u64, held: HashMap<u32, u64>, suspended: bool) {
        self.with(session, |loan| (loan.held, loan.suspended) = (held, suspended));
    }

    /// A session begins. Messages for its worker go to `orders`.
    pub(crate) fn begin(&self, session: u64, worker: u32, orders: mpsc::UnboundedSender<ToWorker>) {
        let (held, asked, left_alone_until) = (HashMap::new(), None, None);
        let loan = Loan { worker, held, suspended: false, orders, asked, left_alone_until };
        self.loans.borrow_mut().insert(session, loan);
    }

    pub(crate) fn end(&self, session: u64) {
        self.loans.borrow_mut().remove(&session);
    }

    /// A session holds less than it was granted.
    pub(crate) fn holds(&self, session: u64, device: u32, bytes: u64) {
        if let Some(loan) = self.loans.borrow_mut().get_mut(&session) {
            let held = loan.held.entry(device).or_default();
            *held = bytes.min(*held);
        }
    }

    /// A worker says whether it has nothing to do.
    pub(crate) fn answered(&self, session: u64, quiet: bool) {
        let asked = self.loans.borrow_mut().get_mut(&session).and_then(|loan| loan.asked.take());
        if let Some(asked) = asked {
            let _ = asked.send(quiet);
        }
    }

    /// Whether a session can have so many bytes of a device beside those that are there.
    fn fits(&self, session: u64, device: u32, bytes: u64) -> bool {
        let Some(memory) = self.memory else { return true };
        let loans = self.loans.borrow();
        let others = loans.iter().filter(|(other, loan)| **other != session && !loan.suspended);
        let held = others.filter_map(|(_, loan)| loan.held.get(&device));
        let held = held.fold(0, |sum: u64, held| sum.saturating_add(*held));
        held.saturating_add(bytes) <= memory
    }

    /// Has room made for a session, so that it holds `bytes` of a device in all. `failed`: the
    /// driver has just refused it.
    pub(crate) async fn room(
        &self,
        session: u64,
        device: u32,
        bytes: u64,
        failed: bool,
        idle: Idle<'_>,
    ) -> bool {
        let Some(settings) = &self.settings else { return false };
        if self.memory.is_some_and(|memory| bytes > memory) {
            return false;
        }
        let until = Instant::now() + settings.idle + HOPE;
        let mut refused = failed;
        loop {
            {
                let _turn = self.turn.lock().await;
                if !refused && self.fits(session, device, bytes) {
                    let mut loans = self.loans.borrow_mut();
                    let Some(loan) = loans.get_mut(&session) else { return false };
                    loan.held.insert(device, bytes);
                    return true;
                }
                if let Some(victim) = self.victim(session, device, idle) {
                    refused = !self.suspend(victim).await && refused;
                    continue;
                }
            }
            if Instant::now() >= until || !self.loans.borrow().contains_key(&session) {
                return false;
            }
            sleep(CHECKED_EVERY).await;
        }
    }

    /// The session that has been idle for longest, of those that can be suspended.
    fn victim(&self, session: u64, device: u32, idle: Idle<'_>) -> Option<u64> {
        let settings = self.settings.as_ref()?;
        let now = Instant::now();
        let loans = self.loans.borrow();
        let may = |(other, loan): &(&u64, &Loan)| {
            **other != session
                && !loan.suspended
                && loan.held.get(&device).is_some_and(|held| *held > 0)
                && loan.left_alone_until.is_none_or(|until| until <= now)
        };
        let waiting =
            loans.iter().filter(may).filter_map(|(other, _)| Some((idle(*other)?, *other)));
        waiting.filter(|(time, _)| *time >= settings.idle).max().map(|(_, other)| other)
    }

    /// Whether the host has room for so much more.
    fn host_has(&self, bytes: u64) -> bool {
        let suspended = |loan: &&Loan| loan.suspended;
        let loans = self.loans.borrow();
        let there: u64 = loans.values().filter(suspended).flat_map(|loan| loan.held.values()).sum();
        match self.settings.as_ref().and_then(|settings| settings.host_memory) {
            Some(most) => there.saturating_add(bytes) <= most,
            None => {
                available().is_none_or(|available| bytes.saturating_add(HOST_RESERVE) <= available)
            }
        }
    }

    /// Suspends a session, if it has nothing to do; whether it is.
    async fn suspend(&self, session: u64) -> bool {
        let began = Instant::now();
        let (answer, answered) = oneshot::channel();
        let (worker, bytes) = {
            let mut loans = self.loans.borrow_mut();
            let Some(loan) = loans.get_mut(&session) else { return false };
            // Until the contrary is shown.
            loan.left_alone_until = Some(began + LEFT_ALONE);
            (loan.worker, loan.held.values().sum::<u64>())
        };
        if !self.host_has(bytes) {
            tracing::warn!(session = %Number(session), bytes, "a session is not suspended: the host has no room for its memory");
            return false;
        }
        if let Some(loan) = self.loans.borrow_mut().get_mut(&session) {
            loan.asked = Some(answer);
            let _ = loan.orders.send(ToWorker::Suspend);
        }
        if !matches!(timeout(ANSWER_TIMEOUT, answered).await, Ok(Ok(true))) {
            // It has come back to life, and is heard of from now on. Should it close its gate yet,
            // it is opened.
            self.order(session, ToWorker::Resume);
            self.with(session, |loan| loan.left_alone_until = Some(Instant::now() + BUSY));
            return false;
        }
        match self.help(Action::Suspend, worker).await {
            Ok(()) => {
                let ms = began.elapsed().as_millis() as u64;
                tracing::info!(session = %Number(session), worker, bytes, ms, "an idle session is suspended, and its memory lent");
                self.with(session, |loan| {
                    loan.suspended = true;
                    loan.left_alone_until = None;
                });
                true
            }
            Err(reason) => {
                tracing::warn!(session = %Number(session), worker, reason, "a session cannot be suspended");
                self.order(session, ToWorker::Resume);
                false
            }
        }
    }

    /// A suspended session has something to do: resumes it, when there is room. Whether it goes on.
    pub(crate) async fn wake(&self, session: u64, idle: Idle<'_>) -> bool {
        let began = Instant::now();
        let mut reason = String::from("other sessions need the memory");
        while began.elapsed() < GIVEN_UP {
            {
                let _turn = self.turn.lock().await;
                let loan = |loan: &Loan| (loan.worker, loan.suspended, loan.held.clone());
                let Some((worker, suspended, held)) = self.loans.borrow().get(&session).map(loan)
                else {
                    return false;
                };
                let crowded =
                    held.iter().find(|(device, bytes)| !self.fits(session, **device, **bytes));
                if !suspended {
                    self.order(session, ToWorker::Resume);
                    return true;
                }
                if let Some((device, _)) = crowded {
                    if let Some(victim) = self.victim(session, *device, idle) {
                        self.suspend(victim).await;
                        continue;
                    }
                } else {
                    match self.help(Action::Resume, worker).await {
                        Ok(()) => {
                            let ms = began.elapsed().as_millis() as u64;
                            tracing::info!(session = %Number(session), worker, ms, "a suspended session goes on");
                            self.with(session, |loan| loan.suspended = false);
                            self.order(session, ToWorker::Resume);
                            return true;
                        }
                        Err(error) => reason = error,
                    }
                    // The driver has no room, perhaps: some memory is in use that is not recorded
                    // here.
                    let victim = held.keys().find_map(|device| self.victim(session, *device, idle));
                    if let Some(victim) = victim
                        && self.suspend(victim).await
                    {
                        continue;
                    }
                }
            }
            sleep(CHECKED_EVERY).await;
        }
        tracing::error!(session = %Number(session), reason, "a suspended session cannot go on");
        false
    }

    fn with(&self, session: u64, change: impl FnOnce(&mut Loan)) {
        if let Some(loan) = self.loans.borrow_mut().get_mut(&session) {
            change(loan);
        }
    }

    fn order(&self, session: u64, order: ToWorker) {
        self.with(session, |loan| {
            // The worker may be gone.
            let _ = loan.orders.send(order);
        });
    }

    /// Has the helper do something to a worker.
    async fn help(&self, action: Action, worker: u32) -> Result<(), String> {
        let Some(helper) = &self.helper else {
            return Err("there is no program that does it".to_owned());
        };
        let mut command = Command::new(&helper.program);
        command.args(&helper.args).args([action.name(), &worker.to_string()]).kill_on_drop(true);
        command.envs(helper.env.iter().map(|(name, value)| (name, value)));
        command.stdin(std::process::Stdio::null());
        let output = timeout(LONGEST_SUSPENSION, command.output())
            .await
            .map_err(|_| "the driver took too long".to_owned())?;
        let output = output.map_err(|error| error.to_string())?;
        match output.status.success() {
            true => Ok(()),
            false => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
        }
    }
}

/// Bytes of memory that programs of this machine could have.
fn available() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib << 10)
}

/// The lending of a server, as tasks share it.
pub(crate) type Shared = Rc<Lending>;
