//! What the thread-locals of a thread do when it ends.
//!
//! The standard library registers the destructor of a thread-local with the C library, by
//! `__cxa_thread_atexit_impl`, which takes the loader's lock to count who needs the library in
//! memory. Our libraries are never unloaded, so nobody needs that count. Whoever links this crate
//! has a `__cxa_thread_atexit_impl` of its own, which only its own code sees: the destructors hang
//! on a key of the thread instead, and the system calls them when the thread ends.

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;
use std::sync::OnceLock;

type Destructor = unsafe extern "C" fn(*mut c_void);

/// The destructors of a thread, in the order in which they were registered.
type Destructors = Vec<(Destructor, *mut c_void)>;

#[cfg(all(target_arch = "x86_64", not(miri)))]
core::arch::global_asm!(
    ".pushsection .text.__cxa_thread_atexit_impl,\"ax\",@progbits",
    ".globl __cxa_thread_atexit_impl",
    ".hidden __cxa_thread_atexit_impl",
    ".type __cxa_thread_atexit_impl, @function",
    "__cxa_thread_atexit_impl:",
    "jmp {register}",
    ".size __cxa_thread_atexit_impl, . - __cxa_thread_atexit_impl",
    ".popsection",
    register = sym register,
);

#[cfg(all(target_arch = "aarch64", not(miri)))]
core::arch::global_asm!(
    ".pushsection .text.__cxa_thread_atexit_impl,\"ax\",@progbits",
    ".globl __cxa_thread_atexit_impl",
    ".hidden __cxa_thread_atexit_impl",
    ".type __cxa_thread_atexit_impl, @function",
    "__cxa_thread_atexit_impl:",
    "b {register}",
    ".size __cxa_thread_atexit_impl, . - __cxa_thread_atexit_impl",
    ".popsection",
    register = sym register,
);

/// The key, or nothing if the program has used up all keys: then what the destructors would free
/// stays.
fn key() -> Option<libc::pthread_key_t> {
    static KEY: OnceLock<Option<libc::pthread_key_t>> = OnceLock::new();
    *KEY.get_or_init(|| {
        let mut key = 0;
        // SAFETY: `run` takes what `register` stores under the key.
        let made = unsafe { libc::pthread_key_create(&raw mut key, Some(run)) } == 0;
        made.then_some(key)
    })
}

/// Makes the key before a thread may need it. A library that starts no threads calls this, so that
/// the function above is linked into it.
#[inline(never)]
pub fn prepare() {
    let _ = key();
}

/// What the standard library calls for a thread-local whose type has a destructor.
unsafe extern "C" fn register(destructor: Destructor, value: *mut c_void, _: *mut c_void) -> c_int {
    let Some(key) = key() else { return 0 };
    // SAFETY: under the key is null, or what was stored below, which only this thread reaches. The
    // borrow ends before anything else is called.
    unsafe {
        let mut list = libc::pthread_getspecific(key).cast::<Destructors>();
        if list.is_null() {
            list = Box::into_raw(Box::default());
            libc::pthread_setspecific(key, list.cast());
        }
        (*list).push((destructor, value));
    }
    0
}

/// Calls the destructors of the thread that ends, the latest first, and those that these register.
unsafe extern "C" fn run(list: *mut c_void) {
    let (Some(key), list) = (key(), list.cast::<Destructors>()) else { return };
    // SAFETY: `list` is what `register` stored, and is stored again while destructors may add to
    // it; no borrow lasts while one is called. Each is called with its value, once, as who
    // registered it wants.
    unsafe {
        libc::pthread_setspecific(key, list.cast());
        while let Some((destructor, value)) = (*list).pop() {
            destructor(value);
        }
        libc::pthread_setspecific(key, null_mut());
        drop(Box::from_raw(list));
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::sync::mpsc::{Sender, channel};

    struct Last(Cell<Option<(Sender<u32>, u32)>>);

    impl Drop for Last {
        fn drop(&mut self) {
            if let Some((say, what)) = self.0.take() {
                // One that is first used while others are dropped is dropped, too.
                if what == 1 {
                    THIRD.with(|third| third.0.set(Some((say.clone(), 3))));
                }
                say.send(what).unwrap();
            }
        }
    }

    thread_local! {
        static FIRST: Last = const { Last(Cell::new(None)) };
        static SECOND: Last = const { Last(Cell::new(None)) };
        static THIRD: Last = const { Last(Cell::new(None)) };
    }

    #[test]
    fn thread_locals_are_dropped_the_latest_first() {
        let (say, hear) = channel();
        crate::start("drops", move || {
            FIRST.with(|value| value.0.set(Some((say.clone(), 1))));
            SECOND.with(|value| value.0.set(Some((say.clone(), 2))));
        })
        .unwrap();
        assert_eq!(hear.iter().collect::<Vec<_>>(), [2, 1, 3]);
    }

    /// Were it the C library's, the address would be the one that the loader finds.
    #[test]
    fn the_function_is_our_own() {
        unsafe extern "C" {
            fn __cxa_thread_atexit_impl();
        }
        // SAFETY: the name is a text, and the handle stands for all libraries.
        let of_the_system =
            unsafe { libc::dlsym(libc::RTLD_NEXT, c"__cxa_thread_atexit_impl".as_ptr()) };
        assert_ne!(__cxa_thread_atexit_impl as *const () as usize, of_the_system as usize);
    }
}
