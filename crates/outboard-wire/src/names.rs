//! What numbers name: contexts, objects and streams, by the client's choice, and addresses. Each is
//! a type, and its number on the wire.

use core::fmt;
use core::ops::Range;

use crate::codec::{Decode, DecodeError, Encode, Reader, Writer};
use crate::device_id::{MAX_SERVERS, ServerId};

/// Encodes a type as the number that it holds.
macro_rules! numbers {
    ($($name:ident $number:ident)*) => {$(
        impl Encode for $name {
            #[inline]
            fn encode(&self, writer: &mut Writer) {
                writer.$number(self.0);
            }
        }

        impl<'a> Decode<'a> for $name {
            #[inline]
            fn decode(reader: &mut Reader<'a>) -> Result<$name, DecodeError> {
                reader.$number().map($name)
            }
        }
    )*};
}

numbers! { ContextId u32 ObjectId u64 StreamId u64 DevicePtr u64 HostPtr u64 UnifiedPtr u64 }

/// A context, as named by the client: its server in the upper bits, and a number in the others. Not
/// used again while its process lives.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord, Default)]
#[repr(transparent)]
pub struct ContextId(pub u32);

impl ContextId {
    /// What stands for no context.
    pub const NONE: ContextId = ContextId(0);

    /// Bits of the number.
    const NUMBER_BITS: u32 = u32::BITS - (MAX_SERVERS as u32).ilog2();

    /// A context of a server, by its number. `None` if there are no more numbers.
    pub fn new(server: ServerId, number: u32) -> Option<ContextId> {
        (number != 0 && number >> Self::NUMBER_BITS == 0)
            .then(|| ContextId((server.place() as u32) << Self::NUMBER_BITS | number))
    }

    /// The number, which no other context of the process has or had, on any server.
    pub fn number(self) -> u32 {
        self.0 & ((1 << Self::NUMBER_BITS) - 1)
    }

    /// Whether both are of one server.
    #[inline]
    pub fn has_server_of(self, other: ContextId) -> bool {
        (self.0 ^ other.0) >> Self::NUMBER_BITS == 0
    }

    /// Its server.
    #[inline]
    pub fn server(self) -> ServerId {
        ServerId::of_bits(self.0 >> Self::NUMBER_BITS)
    }
}

/// An event, module, function or whatever else a client names: unique in its process.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord, Default)]
#[repr(transparent)]
pub struct ObjectId(pub u64);

impl ObjectId {
    /// What stands for no object.
    pub const NONE: ObjectId = ObjectId(0);
}

/// A stream of a context: its legacy default stream, or an object that the client has named.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord, Default)]
#[repr(transparent)]
pub struct StreamId(pub u64);

impl StreamId {
    /// The legacy default stream of the context: waits for all blocking streams and they for it.
    pub const LEGACY: StreamId = StreamId(0);

    /// The stream that was made under this name.
    #[inline]
    pub const fn created(object: ObjectId) -> StreamId {
        StreamId(object.0)
    }

    /// What the stream was made as, if it is not the legacy default stream.
    #[inline]
    pub const fn object(self) -> Option<ObjectId> {
        if self.0 == StreamId::LEGACY.0 { None } else { Some(ObjectId(self.0)) }
    }
}

macro_rules! pointers {
    ($($(#[$docs:meta])* $name:ident)*) => {$(
        $(#[$docs])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
        #[repr(transparent)]
        pub struct $name(pub u64);

        impl $name {
            /// No address.
            pub const NULL: $name = $name(0);

            /// Whether it is no address.
            #[inline]
            pub const fn is_null(self) -> bool {
                self.0 == 0
            }

            /// The address `bytes` behind this one, which is one.
            #[inline]
            pub const fn offset(self, bytes: u64) -> $name {
                $name(self.0 + bytes)
            }

            /// The address `bytes` behind this one, if there is such an address.
            #[inline]
            pub const fn checked_add(self, bytes: u64) -> Option<$name> {
                match self.0.checked_add(bytes) {
                    Some(address) => Some($name(address)),
                    None => None,
                }
            }

            /// The address `bytes` behind this one, or the last there is.
            #[inline]
            pub const fn saturating_add(self, bytes: u64) -> $name {
                $name(self.0.saturating_add(bytes))
            }

            /// Bytes from `base`, which is not behind this address, to here.
            #[inline]
            pub const fn since(self, base: $name) -> u64 {
                self.0 - base.0
            }

            /// Whether the address is a multiple of `bytes`.
            #[inline]
            pub const fn is_multiple_of(self, bytes: u64) -> bool {
                self.0.is_multiple_of(bytes)
            }

            /// The first multiple of `bytes` that is not before this address.
            #[inline]
            pub const fn next_multiple_of(self, bytes: u64) -> $name {
                $name(self.0.next_multiple_of(bytes))
            }

            /// The last multiple of `bytes` that is not behind this address.
            #[inline]
            pub const fn previous_multiple_of(self, bytes: u64) -> $name {
                $name(self.0 - self.0 % bytes)
            }

            /// The addresses of `bytes` from here on.
            #[inline]
            pub const fn range(self, bytes: u64) -> Range<$name> {
                self..self.offset(bytes)
            }
        }

        impl outboard_ranges::Address for $name {
            fn since(self, base: $name) -> u64 {
                self.since(base)
            }

            fn saturating_add(self, bytes: u64) -> $name {
                self.saturating_add(bytes)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({:#x})"), self.0)
            }
        }
    )*};
}

pointers! {
    /// An address of device memory.
    DevicePtr
    /// An address in a process: the program's on the client, the worker's own in the worker.
    HostPtr
    /// An address in the one space that CUDA has for a program: of device memory or of host memory,
    /// which only a look tells, or of memory that both have under the same address.
    UnifiedPtr
}

impl DevicePtr {
    /// The same address, before it is known to be the device's.
    #[inline]
    pub const fn unified(self) -> UnifiedPtr {
        UnifiedPtr(self.0)
    }
}

impl HostPtr {
    /// The address of what a pointer points to.
    #[inline]
    pub fn of<T>(pointer: *const T) -> HostPtr {
        HostPtr(pointer as u64)
    }

    /// The address as a pointer; what is there is for its user to know.
    #[inline]
    pub const fn pointer<T>(self) -> *mut T {
        self.0 as *mut T
    }

    /// The same address, before it is known to be the host's.
    #[inline]
    pub const fn unified(self) -> UnifiedPtr {
        UnifiedPtr(self.0)
    }
}

impl UnifiedPtr {
    /// The address as the device uses it.
    #[inline]
    pub const fn device(self) -> DevicePtr {
        DevicePtr(self.0)
    }

    /// The address as the process uses it.
    #[inline]
    pub const fn host(self) -> HostPtr {
        HostPtr(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::decode_all;

    fn bytes(value: &impl Encode) -> Vec<u8> {
        let mut writer = Writer::new();
        writer.put(value);
        writer.into_vec()
    }

    #[test]
    fn names_travel_as_their_numbers() {
        let number = 0x0123_4567_89ab_cdef_u64;
        let expected = bytes(&number);
        assert_eq!(bytes(&ContextId(7)), bytes(&7_u32));
        assert_eq!(bytes(&ObjectId(number)), expected);
        assert_eq!(bytes(&StreamId(number)), expected);
        assert_eq!(bytes(&DevicePtr(number)), expected);
        assert_eq!(bytes(&HostPtr(number)), expected);
        assert_eq!(bytes(&UnifiedPtr(number)), expected);
        assert_eq!(decode_all::<DevicePtr>(&expected), Ok(DevicePtr(number)));
        assert_eq!(decode_all::<ContextId>(&bytes(&7_u32)), Ok(ContextId(7)));
        assert!(decode_all::<StreamId>(&expected[1..]).is_err());
    }

    #[test]
    fn streams_are_objects_but_for_the_legacy_one() {
        assert_eq!(StreamId::LEGACY.object(), None);
        assert_eq!(StreamId::created(ObjectId(5)).object(), Some(ObjectId(5)));
    }

    #[test]
    fn addresses_are_counted_in_bytes_and_shown_in_hex() {
        let base = DevicePtr(0x1000);
        assert_eq!(base.offset(0x10).since(base), 0x10);
        assert_eq!(
            (base.checked_add(u64::MAX), base.saturating_add(u64::MAX)),
            (None, DevicePtr(u64::MAX))
        );
        assert!(
            base.range(2).contains(&DevicePtr(0x1001))
                && !base.range(2).contains(&DevicePtr(0x1002))
        );
        assert_eq!(format!("{base:?}"), "DevicePtr(0x1000)");
        assert_eq!(base.unified().host(), HostPtr(0x1000));
    }
}
