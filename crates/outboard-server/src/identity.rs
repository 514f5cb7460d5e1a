//! Who a client is, and what it may have.

/// A client as the supervisor knows it: what its token, its certificate or its user on this machine has shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// Whom its sessions are counted for, among them all clients that have shown nothing: `anonymous`.
    pub owner: String,
    /// The token's public name, if it has shown one.
    pub token: Option<String>,
    /// What it may have.
    pub limits: Limits,
}

/// What one client, or all clients of an owner, may have. What is `None` has no limit of its own.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of device memory of a session, on each device.
    pub memory: Option<u64>,
    /// Sessions of the owner at once.
    pub sessions: Option<u32>,
    /// Share of a device's multiprocessors, in percent: 1 to 100.
    pub multiprocessors: Option<u8>,
    /// Bytes a second between client and server, either way.
    pub bandwidth: Option<u64>,
}

impl Identity {
    /// Somebody who has shown nothing.
    pub fn anonymous() -> Identity {
        Identity { owner: "anonymous".to_owned(), token: None, limits: Limits::default() }
    }

    /// A user of this machine, whom the system vouches for.
    pub fn user(id: u32) -> Identity {
        Identity { owner: format!("user:{id}"), token: None, limits: Limits::default() }
    }
}

impl Limits {
    /// The stricter of both, one by one.
    pub fn and(self, other: Limits) -> Limits {
        fn less<T: Ord>(one: Option<T>, other: Option<T>) -> Option<T> {
            match (one, other) {
                (Some(one), Some(other)) => Some(one.min(other)),
                (one, other) => one.or(other),
            }
        }
        Limits {
            memory: less(self.memory, other.memory),
            sessions: less(self.sessions, other.sessions),
            multiprocessors: less(self.multiprocessors, other.multiprocessors),
            bandwidth: less(self.bandwidth, other.bandwidth),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stricter_limit_holds() {
        let token = Limits { memory: Some(5), sessions: None, multiprocessors: Some(50), bandwidth: None };
        let server = Limits { memory: Some(9), sessions: Some(2), multiprocessors: Some(20), bandwidth: None };
        let both = Limits { memory: Some(5), sessions: Some(2), multiprocessors: Some(20), bandwidth: None };
        assert_eq!(token.and(server), both);
        assert_eq!(server.and(token), both);
    }
}
