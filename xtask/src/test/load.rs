//! Busy loops beside the tests: what passes only on an idle machine fails beside them.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::util;

/// A loop on every processor, until this is dropped.
pub(super) struct Load {
    over: Arc<AtomicBool>,
}

impl Load {
    pub(super) fn start() -> Load {
        let over = Arc::new(AtomicBool::new(false));
        for _ in 0..util::processors() {
            let over = Arc::clone(&over);
            std::thread::spawn(move || {
                while !over.load(Ordering::Relaxed) {
                    (0..1_000_000).for_each(|number| _ = black_box(number));
                }
            });
        }
        Load { over }
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
    }
}
