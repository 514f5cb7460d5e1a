//! Threads in a process that belongs to somebody else: a program that loaded one of our libraries.
//!
//! Such a thread takes none of the program's signals, and never the loader's lock, which the
//! program holds while a library is loaded or unloaded. A constructor or destructor may use CUDA,
//! and then waits for these threads ([decision
//! 79](../../../docs/decisions/0079-threads-that-need-no-loader.md)).
//!
//! The standard library starts a thread only after a `dlsym`, so this crate calls the system.

mod beside;
mod leaving;
mod saying;
mod signals;

use std::ffi::CString;
use std::io;
use std::mem::MaybeUninit;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::null_mut;

use libc::{c_int, c_void};

pub use beside::{Joined, beside, start_joined};
pub use leaving::prepare;
pub use saying::{say, writing};

/// The stack of a thread, in bytes, unless its starter asks for another: address space only, until
/// it is used.
pub const STACK: usize = 2 << 20;

/// The most that a thread gets if the program's thread-locals, which the system puts into the
/// stack, leave no room in what was asked for.
const LARGEST: usize = 64 << 20;

/// The longest name that the kernel keeps, in bytes.
const NAME: usize = 15;

/// What a thread is started with.
struct Start {
    name: CString,
    body: Box<dyn FnOnce() + Send>,
}

/// Starts a thread that nobody joins. A panic ends it and nothing else.
///
/// # Errors
/// The system's error if it starts no thread.
pub fn start(name: &str, body: impl FnOnce() + Send + 'static) -> io::Result<()> {
    start_with_stack(name, STACK, body)
}

/// As [`start`], with so many bytes of stack.
///
/// # Errors
/// The system's error if it starts no thread.
pub fn start_with_stack(
    name: &str,
    stack: usize,
    body: impl FnOnce() + Send + 'static,
) -> io::Result<()> {
    spawn(name, stack, Box::new(body))
}

fn spawn(name: &str, stack: usize, body: Box<dyn FnOnce() + Send>) -> io::Result<()> {
    leaving::prepare();
    let kept = name.bytes().filter(|&byte| byte != 0).take(NAME).collect::<Vec<_>>();
    let name = CString::new(kept).unwrap_or_default();
    let start = Box::into_raw(Box::new(Start { name, body }));
    let mut stack = stack;
    let code = loop {
        match signals::blocked(|| create(stack, start.cast())) {
            libc::EINVAL if stack < LARGEST => stack *= 2,
            code => break code,
        }
    };
    if code != 0 {
        // SAFETY: from `into_raw` above; no thread has begun that would take it.
        drop(unsafe { Box::from_raw(start) });
        return Err(io::Error::from_raw_os_error(code));
    }
    Ok(())
}

/// Makes a detached thread; 0, or the system's error.
fn create(stack: usize, start: *mut c_void) -> c_int {
    let mut attributes = MaybeUninit::<libc::pthread_attr_t>::uninit();
    let mut thread = MaybeUninit::<libc::pthread_t>::uninit();
    let attributes = attributes.as_mut_ptr();
    // SAFETY: the attributes are initialised before they are used, and destroyed once; `begin`
    // takes what `spawn` made.
    unsafe {
        match libc::pthread_attr_init(attributes) {
            0 => {}
            code => return code,
        }
        let code = match libc::pthread_attr_setstacksize(attributes, stack) {
            0 => {
                libc::pthread_attr_setdetachstate(attributes, libc::PTHREAD_CREATE_DETACHED);
                libc::pthread_create(thread.as_mut_ptr(), attributes, begin, start)
            }
            code => code,
        };
        libc::pthread_attr_destroy(attributes);
        code
    }
}

/// The thread.
extern "C" fn begin(start: *mut c_void) -> *mut c_void {
    // SAFETY: `spawn` made it for this thread alone.
    let start = unsafe { Box::from_raw(start.cast::<Start>()) };
    // SAFETY: the name is a text of at most 15 bytes, for the thread that asks.
    unsafe { libc::prctl(libc::PR_SET_NAME, start.name.as_ptr()) };
    // A panic may not leave a function of C's. What it breaks belongs to this thread.
    let _ = catch_unwind(AssertUnwindSafe(start.body));
    null_mut()
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn a_thread_has_its_name_and_outlives_a_panic_of_another() {
        let (say, hear) = channel();
        std::panic::set_hook(Box::new(|_| {}));
        start("panics", || panic!("this one is meant to")).unwrap();
        start("a name that is too long", move || {
            let name = std::fs::read_to_string("/proc/thread-self/comm").unwrap();
            say.send(name).unwrap();
        })
        .unwrap();
        assert_eq!(hear.recv().unwrap(), "a name that is \n");
    }

    #[test]
    fn a_thread_has_the_stack_that_was_asked_for() {
        let (say, hear) = channel();
        start_with_stack("large", 16 << 20, move || {
            // More than `STACK`, also where the compiler makes a copy of it.
            let large = std::hint::black_box([1_u8; 4 << 20]);
            say.send(large.iter().map(|&byte| u64::from(byte)).sum::<u64>()).unwrap();
        })
        .unwrap();
        assert_eq!(hear.recv().unwrap(), 4 << 20);
    }

    #[test]
    fn what_a_thread_was_to_do_is_dropped_if_there_is_no_thread() {
        let (say, hear) = channel::<()>();
        // No address space is that large.
        let failed = start_with_stack("none", 1 << 50, move || say.send(()).unwrap());
        assert!(failed.is_err());
        assert!(hear.recv().is_err(), "the other end is gone");
    }
}
