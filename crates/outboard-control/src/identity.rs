//! Who a client is, and what it may have.

use outboard_wire::{Decode, DecodeError, Encode, Reader, Writer, record};
use serde::{Deserialize, Serialize};

/// A client as the supervisor knows it: what its token, its certificate or its user on this machine
/// has shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// Whom its sessions are counted for, among them all clients that have shown nothing:
    /// `anonymous`.
    pub owner: String,
    /// The token's public name, if it has shown one.
    pub token: Option<String>,
    /// What it may have.
    pub limits: Limits,
}

/// What one client, or all clients of an owner, may have. What is `None` has no limit of its own.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
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
    /// The owner of those who have shown nothing.
    pub const ANONYMOUS: &str = "anonymous";

    /// Somebody who has shown nothing.
    pub fn anonymous() -> Identity {
        Identity { owner: Identity::ANONYMOUS.to_owned(), token: None, limits: Limits::default() }
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

record!(Identity { owner, token, limits });

impl Encode for Limits {
    fn encode(&self, writer: &mut Writer) {
        writer.put(&self.memory);
        writer.put(&self.sessions);
        // Percent, in the room of a number that has an encoding.
        writer.put(&self.multiprocessors.map(u32::from));
        writer.put(&self.bandwidth);
    }
}

impl<'a> Decode<'a> for Limits {
    fn decode(reader: &mut Reader<'a>) -> Result<Limits, DecodeError> {
        let (memory, sessions) = (reader.get()?, reader.get()?);
        let percent: Option<u32> = reader.get()?;
        let invalid = |value: u32| DecodeError::Invalid {
            what: "share of multiprocessors",
            value: value.into(),
        };
        let multiprocessors =
            percent.map(|value| u8::try_from(value).map_err(|_| invalid(value))).transpose()?;
        Ok(Limits { memory, sessions, multiprocessors, bandwidth: reader.get()? })
    }
}

#[cfg(test)]
mod tests {
    use outboard_wire::codec::decode_all;

    use super::*;

    #[test]
    fn it_arrives_as_it_was_sent() {
        let limits = Limits {
            memory: Some(20 << 30),
            sessions: Some(2),
            multiprocessors: Some(50),
            bandwidth: None,
        };
        for identity in [
            Identity::anonymous(),
            Identity::user(1000),
            Identity { owner: "alice".to_owned(), token: Some("3f9a".to_owned()), limits },
        ] {
            let mut writer = Writer::new();
            writer.put(&identity);
            assert_eq!(decode_all::<Identity>(writer.as_slice()), Ok(identity));
        }
    }

    #[test]
    fn the_stricter_limit_holds() {
        let token =
            Limits { memory: Some(5), sessions: None, multiprocessors: Some(50), bandwidth: None };
        let server = Limits {
            memory: Some(9),
            sessions: Some(2),
            multiprocessors: Some(20),
            bandwidth: None,
        };
        let both = Limits {
            memory: Some(5),
            sessions: Some(2),
            multiprocessors: Some(20),
            bandwidth: None,
        };
        assert_eq!(token.and(server), both);
        assert_eq!(server.and(token), both);
    }
}
