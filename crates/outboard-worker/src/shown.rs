//! What others are shown of the session: its counters, and what stands of it on the board.

use outboard_control::meter::{self, Class};

/// What stands there, and how true it is.
pub(crate) struct Shown {
    /// What each command counts as, by its number.
    classes: &'static [Class],
    /// Memory in use is asked of the driver library and shown on the board: no NVML knows it.
    asks_for_memory: bool,
    /// Whether what stands on the board is what the last command has left.
    is_true: bool,
}

impl Shown {
    pub(crate) fn new(asks_for_memory: bool) -> Shown {
        Shown { classes: Class::table(), asks_for_memory, is_true: false }
    }

    pub(crate) fn asks_for_memory(&self) -> bool {
        self.asks_for_memory
    }

    /// A command is about to be carried out; what it counts as.
    #[inline]
    pub(crate) fn begin(&mut self, op: u16) -> Class {
        self.change();
        let class = self.classes.get(usize::from(op)).copied().unwrap_or(Class::Other);
        meter::page().command(class);
        class
    }

    /// What is shown may not be true any more.
    #[inline]
    pub(crate) fn change(&mut self) {
        self.is_true = false;
    }

    /// What is shown has been brought up to date.
    pub(crate) fn update(&mut self) {
        self.is_true = true;
    }

    pub(crate) fn is_true(&self) -> bool {
        self.is_true
    }
}

#[cfg(test)]
mod tests {
    use outboard_wire::messages::{Launch, Message};

    use super::*;

    #[test]
    fn a_command_makes_what_is_shown_untrue() {
        let mut shown = Shown::new(false);
        assert!(!shown.is_true() && !shown.asks_for_memory());
        shown.update();
        assert!(shown.is_true());
        assert_eq!(shown.begin(Launch::OP), Class::Launch);
        assert!(!shown.is_true());
        shown.update();
        assert_eq!(shown.begin(u16::MAX), Class::Other, "there is no such message");
        assert!(!shown.is_true());
        shown.update();
        shown.change();
        assert!(!shown.is_true());
    }
}
