//! The servers of a process.

use outboard_front::backend::ServerId;
use outboard_front::several::Member;

use crate::remote::Remote;
use crate::target::Targets;

impl Member for Remote {
    fn list() -> Vec<ServerId> {
        // What is wrong with the list is said when the first server is asked for its devices.
        Targets::from_env().map_or_else(|_| vec![ServerId::FIRST], |targets| targets.entries().to_vec())
    }

    fn of_server(server: ServerId) -> &'static Remote {
        Box::leak(Box::new(Remote::new(server)))
    }
}
