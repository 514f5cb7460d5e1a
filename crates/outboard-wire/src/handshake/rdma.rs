//! What client and server say of RDMA adapters.

use super::Kind;
use crate::codec::{Decode, DecodeError, Encode, Reader, Writer};

/// The kind of these parts: [`Able`] in the hello of a session or of a link to its worker,
/// [`Adapters`] in the welcome.
pub const RDMA: Kind = Kind(14);

/// Who says hello has adapters, and may move the session's connections, or this one of a link, to
/// them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Able;

/// The server's adapters. If there are any, the client says for each connection of the session
/// whether it moves to one, in the messages of `outboard_transport::rdma`: behind the welcome that
/// says this; and on each further connection before the welcome. A worker that links itself to the
/// session's does so behind the welcome of each connection.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Adapters {
    /// Where they are reached, best first.
    pub addresses: Vec<AdapterAddress>,
    /// Whether bytes on them go in the clear, though the session's connections are encrypted.
    pub clear: bool,
    /// If there are none: why.
    pub missing: String,
    /// Whether they move bytes from and to memory that the client lends, once a connection has
    /// moved in the clear.
    pub borrow: bool,
}

/// Where a port of an adapter is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AdapterAddress {
    /// Its global identifier; in Ethernet an address of IPv6, or one of IPv4 mapped to that.
    pub gid: [u8; 16],
    /// Whether its link is Ethernet, and not InfiniBand.
    pub ethernet: bool,
}

impl Adapters {
    /// The most addresses that are named.
    pub const MOST: usize = 16;
}

impl Encode for Able {
    fn encode(&self, _writer: &mut Writer) {}
}

impl<'a> Decode<'a> for Able {
    fn decode(_reader: &mut Reader<'a>) -> Result<Able, DecodeError> {
        Ok(Able)
    }
}

impl Encode for AdapterAddress {
    fn encode(&self, writer: &mut Writer) {
        writer.fixed(&self.gid);
        writer.put(&self.ethernet);
    }
}

impl<'a> Decode<'a> for AdapterAddress {
    fn decode(reader: &mut Reader<'a>) -> Result<AdapterAddress, DecodeError> {
        Ok(AdapterAddress { gid: reader.array()?, ethernet: reader.get()? })
    }
}

impl Encode for Adapters {
    fn encode(&self, writer: &mut Writer) {
        writer.put(&self.addresses);
        writer.put(&self.clear);
        writer.put(&self.missing);
        writer.put(&self.borrow);
    }
}

impl<'a> Decode<'a> for Adapters {
    fn decode(reader: &mut Reader<'a>) -> Result<Adapters, DecodeError> {
        let count = reader.u32()?;
        if count as usize > Adapters::MOST {
            return Err(DecodeError::Invalid {
                what: "number of RDMA adapters",
                value: count.into(),
            });
        }
        let addresses = (0..count).map(|_| reader.get()).collect::<Result<_, _>>()?;
        let (clear, missing) = (reader.get()?, reader.get()?);
        // Servers of earlier releases do not say.
        let borrow = reader.remaining() > 0 && reader.get()?;
        Ok(Adapters { addresses, clear, missing, borrow })
    }
}

#[cfg(test)]
mod tests {
    use super::super::Extensions;
    use super::*;

    struct Earlier;

    impl Encode for Earlier {
        fn encode(&self, writer: &mut Writer) {
            writer.u32(0);
            writer.put(&false);
            writer.put(&String::new());
        }
    }

    #[test]
    fn adapters_travel_and_are_bounded() {
        let address = AdapterAddress { gid: [7; 16], ethernet: true };
        let mut more = Extensions::default();
        for count in [0, 1, Adapters::MOST] {
            let missing = if count == 0 { "none".to_owned() } else { String::new() };
            let borrow = count == 1;
            let adapters =
                Adapters { addresses: vec![address; count], clear: true, missing, borrow };
            more.set(RDMA, &adapters);
            assert_eq!(more.get(RDMA), Ok(Some(adapters)));
        }
        let addresses = vec![address; Adapters::MOST + 1];
        more.set(RDMA, &Adapters { addresses, ..Adapters::default() });
        assert!(more.get::<Adapters>(RDMA).is_err());
        // As a server of an earlier release says it.
        more.set(RDMA, &Earlier);
        assert_eq!(more.get(RDMA), Ok(Some(Adapters::default())));
        more.set(RDMA, &u32::MAX);
        assert!(more.get::<Adapters>(RDMA).is_err());
        more.set(RDMA, &Able);
        assert_eq!(more.get(RDMA), Ok(Some(Able)));
    }
}
