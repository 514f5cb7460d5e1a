//! Devices of a process that has several servers.

use std::fmt;

use crate::codec::{Decode, DecodeError, Encode, Reader, Writer};

/// Most servers that a process can have. A power of two: a place is so many bits of a name.
pub const MAX_SERVERS: usize = 64;

/// One of a process's servers, by its place in the list that the program was given.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord, Default)]
pub struct ServerId(u8);

impl ServerId {
    /// The first one; that of a process with one server.
    pub const FIRST: ServerId = ServerId(0);

    /// The one at this place, below [`MAX_SERVERS`].
    pub fn new(place: usize) -> Option<ServerId> {
        u8::try_from(place).ok().filter(|place| usize::from(*place) < MAX_SERVERS).map(ServerId)
    }

    /// The one whose place is in these bits; those above the ones for [`MAX_SERVERS`] do not count.
    #[inline]
    pub const fn of_bits(bits: u32) -> ServerId {
        ServerId((bits & (MAX_SERVERS as u32 - 1)) as u8)
    }

    /// Its place in the list.
    #[inline]
    pub fn place(self) -> usize {
        self.0.into()
    }
}

/// A device of a process: its server, and its ordinal in that server's driver library.
///
/// A server knows of no other, so only the ordinal travels. What a client reads is a device of
/// [`ServerId::FIRST`] until it says otherwise.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct DeviceId {
    server: ServerId,
    ordinal: u32,
}

impl DeviceId {
    /// The device of a process's first server with this ordinal.
    pub const fn new(ordinal: u32) -> DeviceId {
        DeviceId { server: ServerId::FIRST, ordinal }
    }

    /// The device with the same ordinal, of this server.
    pub fn of(self, server: ServerId) -> DeviceId {
        DeviceId { server, ..self }
    }

    /// Its server.
    pub fn server(self) -> ServerId {
        self.server
    }

    /// Its ordinal in the server's driver library.
    pub fn ordinal(self) -> u32 {
        self.ordinal
    }
}

impl fmt::Debug for DeviceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.server {
            ServerId::FIRST => write!(f, "{}", self.ordinal),
            server => write!(f, "{} of server {}", self.ordinal, server.0),
        }
    }
}

impl Encode for DeviceId {
    fn encode(&self, writer: &mut Writer) {
        writer.put(&self.ordinal);
    }
}

impl<'a> Decode<'a> for DeviceId {
    fn decode(reader: &mut Reader<'a>) -> Result<DeviceId, DecodeError> {
        reader.get().map(DeviceId::new)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ordinal_travels_alone() {
        let device = DeviceId::new(3).of(ServerId::new(5).unwrap());
        assert_eq!((device.server().place(), device.ordinal()), (5, 3));
        let mut writer = Writer::new();
        writer.put(&device);
        let bytes = writer.into_vec();
        assert_eq!(bytes, 3u32.to_le_bytes());
        assert_eq!(Reader::new(&bytes).get::<DeviceId>().unwrap(), DeviceId::new(3));
    }

    #[test]
    fn servers_are_counted_up_to_the_most() {
        assert_eq!(ServerId::new(0), Some(ServerId::FIRST));
        assert_eq!(ServerId::new(MAX_SERVERS - 1).map(ServerId::place), Some(MAX_SERVERS - 1));
        assert_eq!(ServerId::new(MAX_SERVERS), None);
    }
}
