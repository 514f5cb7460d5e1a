//! Functions that Outboard does not have.

use super::enter;
use crate::collectives::Failure;
use crate::process::Front;

/// Refuses a function by its name.
pub fn refused(front: &'static Front, name: &str, why: &str) -> u32 {
    enter(front, name, || {
        Err(Failure::usage(format!("Outboard does not have this function: {why}")))
    })
}
