//! Room for the command's own calls, however small a stack the shell allows (`ulimit -s`): it reads
//! a command line of many parts before it knows what it is to do.

use std::panic::resume_unwind;

use rustix::process::{Resource, getrlimit};

/// What a shell allows by default: more than any command uses.
const ENOUGH: u64 = 8 << 20;

/// Does something on this thread, or on another one if this one's stack is small.
pub(crate) fn with_enough<T: Send + 'static>(what: fn() -> T) -> T {
    if getrlimit(Resource::Stack).current.is_none_or(|limit| limit >= ENOUGH) {
        return what();
    }
    let thread = std::thread::Builder::new().name("main".to_owned()).stack_size(ENOUGH as usize);
    match thread.spawn(what) {
        Ok(thread) => thread.join().unwrap_or_else(|panic| resume_unwind(panic)),
        Err(_) => what(),
    }
}
