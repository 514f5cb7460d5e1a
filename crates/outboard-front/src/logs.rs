//! The log of errors: what each failed call was, why, and what to do about it. It also has
//! warnings: what a call that succeeded cannot do as the program may expect.
//!
//! A failed call stores only a few words, and sentences are made when the log is read: a program
//! that provokes thousands of errors pays little for each.

pub(crate) mod advice;

use core::cell::{Cell, RefCell};
use core::ffi::{c_char, c_void};
use std::borrow::Cow;
use std::collections::VecDeque;
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::LocalKey;
use std::time::{SystemTime, UNIX_EPOCH};

use outboard_abi::{CUlogLevel, CUresult};
use parking_lot::{Mutex, MutexGuard};

use crate::errors;
use crate::generated::symbols::{SYMBOLS, why_not};

/// Bytes of sentences that are kept; the most that cuda.h lets a reader expect.
const KEPT_BYTES: usize = 25_600;

/// No reason is longer, in bytes: compilers say a lot.
pub(crate) const LONGEST_REASON: usize = 2048;

type Reason = Cow<'static, str>;

/// What a call has to say.
pub(crate) struct Message {
    what: What,
    at: SystemTime,
    /// The thread that made the call, as `pthread_self` names it.
    thread: u64,
}

enum What {
    /// It failed.
    Failed {
        symbol: usize,
        error: CUresult,
        reason: Option<Reason>,
    },
    Warning(Reason),
}

pub(crate) struct Log {
    pub(crate) messages: VecDeque<Message>,
    /// The number of the first of them.
    pub(crate) first: u32,
    /// What their sentences take, about.
    bytes: usize,
}

/// A callback of the program, with its argument.
#[derive(Clone, Copy)]
pub(crate) struct Listener {
    pub(crate) handle: usize,
    pub(crate) function: unsafe extern "C" fn(*mut c_void, CUlogLevel, *mut c_char, usize),
    pub(crate) data: usize,
}

/// The errors of a process, and the callbacks for them.
pub(crate) struct Logs {
    pub(crate) log: Mutex<Log>,
    pub(crate) listeners: Mutex<Vec<Listener>>,
    /// How many there are: without callbacks, no sentence is formatted.
    pub(crate) listening: AtomicUsize,
    /// Of listeners: multiples of 16, never used again.
    pub(crate) next_handle: AtomicUsize,
    /// What `CUDA_LOG_FILE` named at the first error: each error is written there.
    file: OnceLock<Option<PathBuf>>,
}

impl Logs {
    pub(crate) const fn new() -> Logs {
        Logs {
            log: Mutex::new(Log { messages: VecDeque::new(), first: 0, bytes: 0 }),
            listeners: Mutex::new(Vec::new()),
            listening: AtomicUsize::new(0),
            next_handle: AtomicUsize::new(0x1_0000),
            file: OnceLock::new(),
        }
    }

    /// In a forked child, another thread of the parent's may have been about to look.
    fn file(&self, forked: bool) -> Option<&Path> {
        if forked {
            return self.file.get()?.as_deref();
        }
        let named = || std::env::var_os("CUDA_LOG_FILE").filter(|name| !name.is_empty());
        self.file.get_or_init(|| named().map(PathBuf::from)).as_deref()
    }
}

/// How many threads have a reason or a warning that is not used yet: calls that succeed look at no
/// more than this.
static GIVEN: AtomicUsize = AtomicUsize::new(0);

/// What is said during a call, before it ends.
type Slot = RefCell<Option<Reason>>;

thread_local! {
    /// Why the present call fails, if the code that detected it has said so.
    static REASON: Slot = const { RefCell::new(None) };
    /// What the present call warns of.
    static WARNING: Slot = const { RefCell::new(None) };
    /// Whether a listener is being called: its own errors are not told to it.
    static TELLING: Cell<bool> = const { Cell::new(false) };
}

impl Message {
    fn new(what: What) -> Message {
        // SAFETY: it only says which thread this is.
        let thread = unsafe { libc::pthread_self() };
        Message { what, at: SystemTime::now(), thread }
    }

    /// A line as NVIDIA's driver writes it (seen with release 580), with the reason behind it.
    pub(crate) fn sentence(&self) -> String {
        let (time, thread) = (time_of_day(self.at), self.thread);
        let (symbol, error, reason) = match &self.what {
            What::Warning(warning) => return format!("[{time}][{thread}][CUDA][W] {warning}\n"),
            What::Failed { symbol, error, reason } => (*symbol, *error, reason.as_deref()),
        };
        let name = SYMBOLS.get(symbol).copied().unwrap_or("a private function");
        let (known, meaning) = errors::find(error)
            .map_or(("an unknown error", ""), |(known, text)| {
                (known.to_str().unwrap_or_default(), text.to_str().unwrap_or_default())
            });
        let refused =
            || (error == CUresult::CUDA_ERROR_NOT_SUPPORTED).then(|| why_not(symbol)).flatten();
        let why = reason.or_else(refused).or_else(|| advice::of(error)).unwrap_or(meaning);
        let code = error.0;
        format!("[{time}][{thread}][CUDA][E] Returning {code} ({known}) from {name}: {why}\n")
    }

    fn level(&self) -> CUlogLevel {
        match self.what {
            What::Failed { .. } => CUlogLevel::CU_LOG_LEVEL_ERROR,
            What::Warning(_) => CUlogLevel::CU_LOG_LEVEL_WARNING,
        }
    }

    /// Whether `CUDA_LOG_FILE` gets it: what runtimes take down while the process ends is no
    /// mistake.
    fn is_for_the_file(&self) -> bool {
        match self.what {
            What::Failed { symbol, error, .. } => {
                !is_question(symbol) && error != CUresult::CUDA_ERROR_DEINITIALIZED
            }
            What::Warning(_) => true,
        }
    }

    fn size(&self) -> usize {
        // A sentence without its reason has about this many bytes.
        160 + match &self.what {
            What::Failed { reason, .. } => reason.as_ref().map_or(0, |reason| reason.len()),
            What::Warning(warning) => warning.len(),
        }
    }
}

/// The time of a day in UTC, with milliseconds.
fn time_of_day(at: SystemTime) -> String {
    let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
    let (seconds, milliseconds) = (since.as_secs(), since.subsec_millis());
    let [hours, minutes, seconds] = [seconds / 3600 % 24, seconds / 60 % 60, seconds % 60];
    format!("{hours:02}:{minutes:02}:{seconds:02}.{milliseconds:03}")
}

/// Whether an error of this function is an answer to a library that asks what there is.
fn is_question(symbol: usize) -> bool {
    symbol == crate::profile::PRIVATE || SYMBOLS.get(symbol) == Some(&"cuGetExportTable")
}

/// Sets the reason why the present call is about to fail. The reason is dropped if the call
/// succeeds after all.
pub(crate) fn because(reason: impl Into<Reason>) {
    say(&REASON, reason.into());
}

/// The log gets this warning when the present call ends, whatever comes of it.
pub fn warn(warning: impl Into<Cow<'static, str>>) {
    say(&WARNING, warning.into());
}

fn say(slot: &'static LocalKey<Slot>, mut said: Reason) {
    if said.len() > LONGEST_REASON {
        let mut end = LONGEST_REASON;
        while !said.is_char_boundary(end) {
            end -= 1;
        }
        said.to_mut().truncate(end);
    }
    let was_empty = slot.try_with(|slot| slot.borrow_mut().replace(said).is_none());
    if was_empty.unwrap_or(false) {
        GIVEN.fetch_add(1, Ordering::Relaxed);
    }
}

fn take(slot: &'static LocalKey<Slot>) -> Option<Reason> {
    let said = slot.try_with(|slot| slot.borrow_mut().take()).ok().flatten();
    if said.is_some() {
        GIVEN.fetch_sub(1, Ordering::Relaxed);
    }
    said
}

/// The reason set for the present call, if any.
pub(crate) fn take_reason() -> Option<Reason> {
    take(&REASON)
}

/// Notes what the call warns of, and forgets a reason that was given on the way to success.
#[inline]
pub(crate) fn succeeded(logs: &Logs, forked: impl FnOnce() -> bool) {
    if GIVEN.load(Ordering::Relaxed) > 0 {
        take_reason();
        note_warning(logs, forked());
    }
}

fn note_warning(logs: &Logs, forked: bool) {
    if let Some(warning) = take(&WARNING) {
        note(logs, Message::new(What::Warning(warning)), forked);
    }
}

/// Locks; in a forked child only without waiting, since who has the lock or waits for it may be a
/// thread of the parent's (docs/decisions/0040-locks.md).
fn lock<T>(mutex: &Mutex<T>, forked: bool) -> Option<MutexGuard<'_, T>> {
    if forked { mutex.try_lock() } else { Some(mutex.lock()) }
}

/// Notes that `SYMBOLS[symbol]` failed.
pub(crate) fn failed(logs: &Logs, symbol: usize, error: CUresult, forked: bool) {
    let reason = take_reason();
    note_warning(logs, forked);
    // An answer to a question, asked again and again.
    if error != CUresult::CUDA_ERROR_NOT_READY {
        note(logs, Message::new(What::Failed { symbol, error, reason }), forked);
    }
}

fn note(logs: &Logs, message: Message, forked: bool) {
    if message.is_for_the_file()
        && let Some(path) = logs.file(forked)
    {
        // Whoever asked for the log finds none if it cannot be written; no call fails for it.
        let _ = outboard_threads::writing(|| append(path, &message.sentence()));
    }
    if logs.listening.load(Ordering::Relaxed) > 0 {
        tell(logs, &message, forked);
    }
    let Some(mut log) = lock(&logs.log, forked) else { return };
    log.bytes += message.size();
    log.messages.push_back(message);
    while log.bytes > KEPT_BYTES
        && let Some(oldest) = log.messages.pop_front()
    {
        log.bytes -= oldest.size();
        log.first = log.first.wrapping_add(1);
    }
}

/// Adds a line to the file of the log, which is made with its first line. Two names are those of
/// streams. The program may close whatever is open, so that nothing is kept open.
fn append(path: &Path, line: &str) -> std::io::Result<()> {
    match path.to_str() {
        Some("stdout") => std::io::stdout().write_all(line.as_bytes()),
        Some("stderr") => std::io::stderr().write_all(line.as_bytes()),
        _ => File::options().append(true).create(true).open(path)?.write_all(line.as_bytes()),
    }
}

/// Calls the listeners.
fn tell(logs: &Logs, message: &Message, forked: bool) {
    if TELLING.try_with(|telling| telling.replace(true)).unwrap_or(true) {
        return;
    }
    let mut sentence = message.sentence();
    // C strings end in a zero, and no line needs its end here.
    sentence.pop();
    sentence.push('\0');
    let listeners = lock(&logs.listeners, forked).map(|all| all.clone()).unwrap_or_default();
    for listener in listeners {
        let (data, len) = (listener.data as *mut c_void, sentence.len() - 1);
        // SAFETY: the program's function and its data, registered for just this.
        unsafe { (listener.function)(data, message.level(), sentence.as_mut_ptr().cast(), len) };
    }
    let _ = TELLING.try_with(|telling| telling.set(false));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentences_name_function_error_and_reason() {
        let at = UNIX_EPOCH + std::time::Duration::from_millis(86_400_000 + 3_723_004);
        let error = CUresult::CUDA_ERROR_INVALID_CONTEXT;
        let failed = |reason| What::Failed { symbol: 0, error, reason };
        let message = Message { what: failed(None), at, thread: 5 };
        let sentence = message.sentence();
        let start = "[01:02:03.004][5][CUDA][E] Returning 201 (CUDA_ERROR_INVALID_CONTEXT) from ";
        assert!(sentence.starts_with(&format!("{start}{}: ", SYMBOLS[0])), "{sentence}");
        let message = Message { what: failed(Some("the cat sat on it".into())), ..message };
        assert!(message.sentence().ends_with("the cat sat on it\n"));
        let message = Message { what: What::Warning("the cat may".into()), ..message };
        assert_eq!(message.sentence(), "[01:02:03.004][5][CUDA][W] the cat may\n");
    }

    #[test]
    fn warnings_are_noted_when_their_call_ends() {
        let logs = Logs::new();
        warn("of one thing");
        succeeded(&logs, || false);
        succeeded(&logs, || false);
        warn("of another");
        failed(&logs, 0, CUresult::CUDA_ERROR_INVALID_VALUE, false);
        let sentences: Vec<String> =
            logs.log.lock().messages.iter().map(Message::sentence).collect();
        let ends = ["[CUDA][W] of one thing\n", "[CUDA][W] of another\n"];
        assert!(
            ends.iter().zip(&sentences).all(|(end, said)| said.ends_with(end)),
            "{sentences:?}"
        );
        assert!(sentences.len() == 3 && sentences[2].contains("[CUDA][E] Returning 1 "));
    }

    #[test]
    fn reasons_are_bounded() {
        because("é".repeat(LONGEST_REASON));
        let kept = take_reason().unwrap();
        assert!(kept.len() <= LONGEST_REASON && kept.chars().all(|c| c == 'é'));
    }
}
