//! Touches of closed pages, and the threads that answer them.
//!
//! Where the kernel watches pages ([`watch`](super::watch)), it tells of touches, and the thread
//! that touches waits in the kernel. Elsewhere pages are protected, and the thread waits in a
//! signal handler. It may hold any lock of the program then, such as the allocator's. The handler
//! therefore takes no lock and allocates nothing: it links a note on its own stack into a list, and
//! sleeps until the pager's thread has handled the note. Other faults go to the handler that was
//! installed before.

use std::cell::UnsafeCell;
use std::ffi::c_void;
use std::io;
use std::mem::MaybeUninit;
use std::ptr::{null, null_mut};
use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicUsize, Ordering};
use std::time::Duration;

use super::table::Table;
use super::touch::{self, Touch};
use super::watch::{Watch, watch};
use outboard_wire::{HostPtr, UnifiedPtr};

/// The ranges whose faults are a pager's, and what answers them.
static RANGES: Table<Service> = Table::new();

/// What answers the faults of one pager: its thread, and the way to it. A process has a pager for
/// each of its servers, and none waits for another's.
pub(super) struct Service {
    /// The notes that no pager has taken yet, latest first.
    notes: AtomicPtr<Note>,
    /// Changes with every note.
    bell: AtomicU32,
    /// The thread, which must never wait for itself.
    thread: AtomicU32,
}

/// A thread that waits for a page.
struct Note {
    address: UnifiedPtr,
    write: bool,
    next: UnsafeCell<*mut Note>,
    waiter: Waiter,
}

/// Where the thread waits.
enum Waiter {
    /// In the handler: the note lies on its stack until this word is [`ANSWERED`].
    Handler(AtomicU32),
    /// In the kernel: the note is the pager's.
    Kernel(&'static Watch),
}

const WAITING: u32 = 0;
const ANSWERED: u32 = 1;

/// Whether this is a forked child: it has no such threads.
static FORKED: AtomicBool = AtomicBool::new(false);

/// A handler that was there before ours, and those before that.
struct Before {
    action: libc::sigaction,
    older: *const Before,
}

/// Never freed: a thread may be in any of them.
static BEFORE: AtomicPtr<Before> = AtomicPtr::new(null_mut());

/// Faults that are with other handlers now: the address of each one's machine context, and how many
/// handlers have had it. A handler that passes what is not its own on to the one that it replaced
/// may pass it on to ours.
static PASSED_ON: [(AtomicUsize, AtomicUsize); 16] =
    [const { (AtomicUsize::new(0), AtomicUsize::new(0)) }; 16];

fn futex_wait(word: &AtomicU32, seen: u32, timeout: Option<Duration>) {
    let time = timeout.map(|time| libc::timespec {
        tv_sec: time.as_secs() as libc::time_t,
        tv_nsec: time.subsec_nanos() as libc::c_long,
    });
    let time = time.as_ref().map_or(null(), |time| &raw const *time);
    // SAFETY: the word is alive and aligned; the time is null or a valid one.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG,
            seen,
            time,
        )
    };
}

fn futex_wake(word: *mut u32) {
    // SAFETY: waking looks at no memory: the address is only a name, even if what was there is
    // gone.
    unsafe {
        libc::syscall(libc::SYS_futex, word, libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG, i32::MAX)
    };
}

fn thread_id() -> u32 {
    // SAFETY: gettid has no preconditions.
    unsafe { libc::syscall(libc::SYS_gettid) as u32 }
}

impl Service {
    pub(super) const fn new() -> Service {
        Service {
            notes: AtomicPtr::new(null_mut()),
            bell: AtomicU32::new(0),
            thread: AtomicU32::new(0),
        }
    }

    /// Starts the thread. `open` opens the page at an address; `rest` is called between notes and
    /// says when it wants to be called again.
    pub(super) fn start(
        &'static self,
        open: impl Fn(UnifiedPtr, bool) + Send + 'static,
        rest: impl Fn() -> Option<Duration> + Send + 'static,
    ) -> io::Result<()> {
        // One for all services: while glibc's list of handlers grows, another thread that forks may
        // call what is none (seen with 2.36).
        static HANDLER: Once = Once::new();
        // SAFETY: the handler makes only calls that are safe in a forked child; see there.
        HANDLER.call_once(|| unsafe { _ = libc::pthread_atfork(None, None, Some(in_the_child)) });
        outboard_threads::start("outboard-pager", move || {
            self.thread.store(thread_id(), Ordering::Release);
            loop {
                let bell = self.bell.load(Ordering::Acquire);
                let note = self.notes.swap(null_mut(), Ordering::AcqRel);
                if note.is_null() {
                    futex_wait(&self.bell, bell, rest());
                    continue;
                }
                answer(note, &open);
                // Others have waited meanwhile for what is due, too.
                let _ = rest();
            }
        })
    }

    /// Faults in these ranges are for this one from now on, and in no others.
    pub(super) fn publish(
        &'static self,
        ranges: impl IntoIterator<Item = (UnifiedPtr, UnifiedPtr)>,
    ) {
        RANGES.replace(self, ranges);
    }

    /// Has the thread look whether something is due.
    pub(super) fn ring(&self) {
        self.bell.fetch_add(1, Ordering::Release);
        futex_wake(self.bell.as_ptr());
    }

    /// Leaves a note and waits for the answer. Then the access can be repeated: if the memory is
    /// not tracked any more, that is a fault of its own.
    fn wait_for(&self, address: UnifiedPtr, write: bool) {
        let waiter = Waiter::Handler(AtomicU32::new(WAITING));
        let mut note = Note { address, write, next: UnsafeCell::new(null_mut()), waiter };
        // SAFETY: the note stays here until it is answered.
        unsafe { self.leave(&raw mut note) };
        let Waiter::Handler(word) = &note.waiter else { return };
        while word.load(Ordering::Acquire) == WAITING {
            futex_wait(word, WAITING, None);
        }
    }

    /// # Safety
    /// The note is there until it is answered, and nobody else has it.
    unsafe fn leave(&self, note: *mut Note) {
        let mut head = self.notes.load(Ordering::Relaxed);
        loop {
            // SAFETY: by the contract above.
            unsafe { *(*note).next.get() = head };
            match self.notes.compare_exchange_weak(head, note, Ordering::AcqRel, Ordering::Relaxed)
            {
                Ok(_) => break,
                Err(other) => head = other,
            }
        }
        self.ring();
    }
}

/// The kernel has told of a touch of a page that it watches.
pub(super) fn told(watch: &'static Watch, address: UnifiedPtr, write: bool) {
    let Some(service) = RANGES.find(address) else {
        // The memory is being taken in or given up: soon it is tracked, or not watched any more.
        std::thread::yield_now();
        let _ = watch.wake(address);
        return;
    };
    let next = UnsafeCell::new(null_mut());
    let note = Box::new(Note { address, write, next, waiter: Waiter::Kernel(watch) });
    // SAFETY: who answers the note frees it.
    unsafe { service.leave(Box::into_raw(note)) };
}

/// Whether this process is a forked child.
pub(super) fn is_child() -> bool {
    FORKED.load(Ordering::Relaxed)
}

/// Answers notes that have been taken, on the thread of the service that they were left for.
fn answer(mut note: *mut Note, open: &impl Fn(UnifiedPtr, bool)) {
    while !note.is_null() {
        // SAFETY: a note lives until its answer is given, which only this thread does, below.
        let Note { address, write, next, waiter } = unsafe { &*note };
        // SAFETY: only the thread that left the note has written to it, before it was left.
        let (address, write, next) = (*address, *write, unsafe { *next.get() });
        open(address, write);
        match waiter {
            Waiter::Handler(word) => {
                let name = word.as_ptr();
                // This is the last use of the note.
                word.store(ANSWERED, Ordering::Release);
                futex_wake(name);
            }
            Waiter::Kernel(watch) => {
                let _ = watch.wake(address);
                // SAFETY: `told` has made it for whoever answers it.
                drop(unsafe { Box::from_raw(note) });
            }
        }
        note = next;
    }
}

/// As [`arm`], where touches of closed pages are signals.
pub(super) fn arm_unless_watched() -> io::Result<()> {
    match watch() {
        Some(_) => Ok(()),
        None => arm(),
    }
}

/// Installs our handler for faults: before the first page is protected, and again later, since a
/// program may have put another handler in its place, which is then the one that gets what is not
/// ours.
pub(super) fn arm() -> io::Result<()> {
    let mut now = MaybeUninit::<libc::sigaction>::uninit();
    // SAFETY: nothing is set; on success the action has been written.
    let now = unsafe {
        if libc::sigaction(libc::SIGSEGV, null(), now.as_mut_ptr()) != 0 {
            return Err(io::Error::last_os_error());
        }
        now.assume_init()
    };
    let ours = handle as *const () as libc::sighandler_t;
    if now.sa_sigaction == ours {
        return Ok(());
    }
    let older = BEFORE.load(Ordering::Acquire).cast_const();
    BEFORE.store(Box::into_raw(Box::new(Before { action: now, older })), Ordering::Release);
    // SAFETY: all zeros is an action without flags and with an empty mask; the handler below keeps
    // to what handlers may do.
    let set = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = ours;
        // On the thread's alternate stack if it has one, and open to the program's other signals
        // while a page is on its way.
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
        libc::sigaction(libc::SIGSEGV, &raw const action, null_mut())
    };
    if set == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

extern "C" fn handle(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the system gives a handler with SA_SIGINFO both; errno is this thread's.
    let (address, sent, errno) = unsafe {
        (HostPtr::of((*info).si_addr()).unified(), (*info).si_code <= 0, *libc::__errno_location())
    };
    // SAFETY: as above.
    let Touch { write, data } = unsafe { touch::of(context) };
    let candidate = !sent && data && !is_child();
    let service = if candidate { RANGES.find(address) } else { None };
    let service = service.filter(|service| service.thread.load(Ordering::Acquire) != thread_id());
    if let Some(service) = service {
        service.wait_for(address, write);
    }
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
    if service.is_none() {
        pass_on(signal, info, context);
    }
}

/// Gives a fault to the handler that was there before ours, as the system would have.
fn pass_on(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    let (place, depth) = passed_on(context as usize);
    let mut before = BEFORE.load(Ordering::Acquire).cast_const();
    for _ in 0..depth {
        // SAFETY: handlers are never freed.
        before = unsafe { before.as_ref() }.map_or(null(), |before| before.older);
    }
    // SAFETY: as above.
    match unsafe { before.as_ref() } {
        Some(Before { action, .. })
            if action.sa_sigaction != libc::SIG_DFL && action.sa_sigaction != libc::SIG_IGN =>
        {
            // SAFETY: the masks are valid; returning from the handler restores the one of before.
            // The program set this action: its flags say what kind of function it is.
            unsafe {
                libc::pthread_sigmask(libc::SIG_BLOCK, &raw const action.sa_mask, null_mut());
                if action.sa_flags & libc::SA_NODEFER != 0 {
                    let mut own = MaybeUninit::uninit();
                    libc::sigemptyset(own.as_mut_ptr());
                    libc::sigaddset(own.as_mut_ptr(), signal);
                    libc::pthread_sigmask(libc::SIG_UNBLOCK, own.as_ptr(), null_mut());
                }
                if action.sa_flags & libc::SA_SIGINFO != 0 {
                    let call: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut c_void) =
                        std::mem::transmute(action.sa_sigaction);
                    call(signal, info, context);
                } else {
                    let call: extern "C" fn(libc::c_int) = std::mem::transmute(action.sa_sigaction);
                    call(signal);
                }
            }
        }
        // If it were ignored, the fault would repeat without end: the system ends the program in
        // both cases, once the access is repeated. SAFETY: the default action is a valid one.
        _ => unsafe {
            libc::signal(signal, libc::SIG_DFL);
        },
    }
    if let Some((who, depth)) = place {
        if depth.load(Ordering::Relaxed) <= 1 {
            who.store(0, Ordering::Release);
        }
        depth.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Notes that the fault of this context goes to another handler; how many have it already.
fn passed_on(context: usize) -> (Option<&'static (AtomicUsize, AtomicUsize)>, usize) {
    if let Some(place) = PASSED_ON.iter().find(|place| place.0.load(Ordering::Acquire) == context) {
        return (Some(place), place.1.fetch_add(1, Ordering::Relaxed));
    }
    for place in &PASSED_ON {
        if place.0.compare_exchange(0, context, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            place.1.store(1, Ordering::Relaxed);
            return (Some(place), 0);
        }
    }
    (None, 0)
}

/// A forked child has no pager, and no use for one: it gets its parent's memory as far as it is
/// inherited, open.
extern "C" fn in_the_child() {
    FORKED.store(true, Ordering::Relaxed);
    RANGES.each(|start, end| {
        // Ranges that the child did not inherit cannot be opened and need not be.
        let _ = super::pages::protect(
            start.host(),
            end.since(start) as usize,
            super::pages::Access::Write,
        );
    });
}
