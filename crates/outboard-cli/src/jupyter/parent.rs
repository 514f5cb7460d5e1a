//! Whom a kernel ends with.
//!
//! A kernel ends when the process that started it is gone, and asks for its parent. Where this
//! process stays between the two, it is the kernel's parent, and itself looks for Jupyter.

use std::os::unix::process::parent_id;
use std::process::Command;
use std::time::Duration;

/// Jupyter's process, for the kernel that it starts.
const VARIABLE: &str = "JPY_PARENT_PID";
/// How often a kernel looks, too.
const PAUSE: Duration = Duration::from_secs(1);

/// Makes this process the one that the program ends with, if Jupyter has started this one for a
/// kernel. `end` is what then becomes of the program when Jupyter is gone.
pub(crate) fn stand_in(command: &mut Command, end: impl Fn() + Send + 'static) {
    let parent = parent_id();
    if std::env::var(VARIABLE).ok().and_then(|text| text.parse().ok()) != Some(parent) {
        return;
    }
    command.env(VARIABLE, std::process::id().to_string());
    std::thread::spawn(move || {
        while parent_id() == parent {
            std::thread::sleep(PAUSE);
        }
        end();
    });
}
