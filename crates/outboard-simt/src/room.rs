//! Room on the stack for what needs much of it: programs have threads whose stacks are small.

use corosensei::stack::DefaultStack;

/// What reading and compiling PTX may take, in bytes: address space only, until it is used.
const ROOM: usize = 8 << 20;

/// Does something on this thread, but on a stack of its own; on the thread's if there is no memory
/// for one.
pub fn with_room<R>(what: impl FnOnce() -> R) -> R {
    match DefaultStack::new(ROOM) {
        Ok(stack) => corosensei::on_stack(stack, what),
        Err(_) => without_room(what),
    }
}

/// Apart, or the compiler gives `with_room` the stack frame of `what`.
#[cold]
#[inline(never)]
fn without_room<R>(what: impl FnOnce() -> R) -> R {
    what()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_with_a_small_stack_has_room() {
        let deep = || {
            // The compiler may make a copy of it.
            let large = std::hint::black_box([1_u8; 2 << 20]);
            large.iter().map(|&byte| u64::from(byte)).sum::<u64>()
        };
        let small = std::thread::Builder::new().stack_size(32 << 10);
        let sum = small.spawn(move || with_room(deep)).unwrap().join().unwrap();
        assert_eq!(sum, 2 << 20);
    }
}
