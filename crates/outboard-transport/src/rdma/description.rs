//! What the two sides tell each other to connect.

use std::io;
use std::time::Instant;

use outboard_rdma::{Address, Gid, Mtu, Remote};
use outboard_wire::codec::{DecodeError, Reader, Writer};

use super::settings::Settings;
use crate::blocking::read_exact_until;
use crate::stream::Stream;

/// What a server tells: of its memory, nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct End {
    pub(super) address: Address,
    pub(super) settings: Settings,
}

/// What a client tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ClientEnd {
    pub(super) end: End,
    /// Its ring, into which the server writes.
    pub(super) ring: Remote,
}

impl End {
    /// Bytes on the wire.
    pub(super) const SIZE: usize = 52;

    pub(super) fn encode(&self) -> [u8; Self::SIZE] {
        let mut writer = Writer::with_capacity(Self::SIZE);
        self.put(&mut writer);
        fixed(&writer)
    }

    pub(super) fn read(from: &dyn Stream, deadline: Instant) -> io::Result<End> {
        let mut said = [0; Self::SIZE];
        read_exact_until(from, &mut said, deadline)?;
        End::decode(&said)
    }

    fn put(&self, writer: &mut Writer) {
        let Address { number, first_packet, lid, gid, mtu } = self.address;
        writer.u32(number);
        writer.u32(first_packet);
        writer.u32(lid.into());
        writer.u32(gid.is_some().into());
        writer.fixed(&gid.unwrap_or_default().0);
        writer.u32(mtu.bytes());
        writer.u32(self.settings.depth);
        writer.u32(self.settings.message);
        writer.u32(self.settings.ring);
        writer.u32(self.settings.mtu.bytes());
    }

    fn get(reader: &mut Reader<'_>) -> io::Result<End> {
        let number = packet(reader.u32().map_err(malformed)?)?;
        let first_packet = packet(reader.u32().map_err(malformed)?)?;
        let lid = u16::try_from(reader.u32().map_err(malformed)?).map_err(|_| wrong("its lid"))?;
        let has_gid = match reader.u32().map_err(malformed)? {
            0 => false,
            1 => true,
            _ => return Err(wrong("its address")),
        };
        let gid = Gid(reader.array().map_err(malformed)?);
        let mtu = packets(reader)?;
        let depth = reader.u32().map_err(malformed)?;
        let message = reader.u32().map_err(malformed)?;
        let ring = reader.u32().map_err(malformed)?;
        let settings = Settings { depth, message, ring, mtu: packets(reader)? };
        Ok(End {
            address: Address { number, first_packet, lid, gid: has_gid.then_some(gid), mtu },
            settings: settings.check().map_err(|_| wrong("its sizes"))?,
        })
    }

    pub(super) fn decode(bytes: &[u8; Self::SIZE]) -> io::Result<End> {
        End::get(&mut Reader::new(bytes))
    }
}

impl ClientEnd {
    /// Bytes on the wire.
    pub(super) const SIZE: usize = End::SIZE + 12;

    pub(super) fn encode(&self) -> [u8; Self::SIZE] {
        let mut writer = Writer::with_capacity(Self::SIZE);
        self.end.put(&mut writer);
        writer.u64(self.ring.address);
        writer.u32(self.ring.rkey);
        fixed(&writer)
    }

    pub(super) fn decode(bytes: &[u8; Self::SIZE]) -> io::Result<ClientEnd> {
        let mut reader = Reader::new(bytes);
        let end = End::get(&mut reader)?;
        let address = reader.u64().map_err(malformed)?;
        let rkey = reader.u32().map_err(malformed)?;
        address.checked_add(end.settings.ring() as u64).ok_or_else(|| wrong("its ring"))?;
        Ok(ClientEnd { end, ring: Remote { address, rkey } })
    }
}

fn fixed<const N: usize>(writer: &Writer) -> [u8; N] {
    let mut bytes = [0; N];
    bytes.copy_from_slice(writer.as_slice());
    bytes
}

/// Numbers of queue pairs and packets have 24 bits.
fn packet(number: u32) -> io::Result<u32> {
    if number < 1 << 24 { Ok(number) } else { Err(wrong("its queue pair")) }
}

fn packets(reader: &mut Reader<'_>) -> io::Result<Mtu> {
    let bytes = reader.u32().map_err(malformed)?;
    Mtu::within(bytes).filter(|mtu| mtu.bytes() == bytes).ok_or_else(|| wrong("its packets"))
}

fn malformed(error: DecodeError) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

fn wrong(what: &str) -> io::Error {
    let text = format!("the peer describes its end of the RDMA connection wrongly: {what}");
    io::Error::new(io::ErrorKind::InvalidData, text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn end() -> End {
        let address = Address {
            number: 17,
            first_packet: 0xabcdef,
            lid: 9,
            gid: Some(Gid([7; 16])),
            mtu: Mtu::MOST,
        };
        End { address, settings: Settings::default() }
    }

    fn client() -> ClientEnd {
        ClientEnd { end: end(), ring: Remote { address: 0x7f00_0000_0000, rkey: 0x1234 } }
    }

    #[test]
    fn ends_travel() {
        assert_eq!(End::decode(&end().encode()).unwrap(), end());
        assert_eq!(ClientEnd::decode(&client().encode()).unwrap(), client());
        let plain = End { address: Address { gid: None, ..end().address }, ..end() };
        assert_eq!(End::decode(&plain.encode()).unwrap(), plain);
    }

    #[test]
    fn what_no_peer_says_is_refused() {
        let refused = |at: usize, value: u32| {
            let mut bytes = client().encode();
            bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
            let error = ClientEnd::decode(&bytes).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{at}");
        };
        refused(0, 1 << 24);
        refused(4, u32::MAX);
        refused(8, 1 << 16);
        refused(12, 2);
        refused(32, 1500);
        refused(36, 0);
        refused(36, 100_000);
        refused(40, 10);
        refused(40, u32::MAX);
        refused(44, 1);
        refused(44, 1 << 30);
        refused(48, 0);
        let mut far = client();
        far.ring.address = u64::MAX - 100;
        assert!(ClientEnd::decode(&far.encode()).is_err());
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_harm(bytes in any::<[u8; 32]>(), more in any::<[u8; 32]>()) {
            let mut all = [0; ClientEnd::SIZE];
            all[..32].copy_from_slice(&bytes);
            all[32..].copy_from_slice(&more);
            if let Ok(read) = ClientEnd::decode(&all) {
                prop_assert!(read.end.settings.check().is_ok());
            }
        }
    }
}
