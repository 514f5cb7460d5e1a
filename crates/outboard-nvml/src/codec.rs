//! Arguments and results on the wire.

use std::ffi::{CStr, CString};

use outboard_wire::{DecodeError, Reader, Writer};

use crate::description::{Function, Param, versioned_size};

/// No call needs more memory than this for one argument.
pub const LARGEST: usize = 1 << 20;

/// An argument as the client has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Given<'a> {
    /// A device's position in the session.
    Device(u32),
    /// An integer.
    Number(u64),
    /// A string.
    Text(&'a CStr),
    /// A null pointer.
    Null,
    /// Memory: what of it the function reads.
    Memory(&'a [u8]),
}

/// An argument as the worker gets it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Argument<'a> {
    /// A device's position in the session; not checked yet.
    Device(u32),
    /// An integer.
    Number(u64),
    /// A string.
    Text(CString),
    /// A null pointer.
    Null,
    /// Memory: its size and what it begins with. The rest is zero.
    Memory {
        /// Bytes of memory to provide.
        room: usize,
        /// The bytes that it begins with, at most `room`.
        given: &'a [u8],
    },
}

/// Writes the arguments of one call. They must be those of the function.
pub fn encode(function: &Function, given: &[Given<'_>], writer: &mut Writer) {
    debug_assert_eq!(function.params.len(), given.len());
    for argument in given {
        match argument {
            Given::Device(index) => writer.u32(*index),
            Given::Number(number) => writer.u64(*number),
            Given::Null => writer.u8(0),
            Given::Text(text) => {
                writer.u8(1);
                writer.bytes(text.to_bytes());
            }
            Given::Memory(bytes) => {
                writer.u8(1);
                writer.bytes(bytes);
            }
        }
    }
}

/// The arguments of one call, encoded. They must be those of the function.
pub(crate) fn arguments(function: &Function, given: &[Given<'_>]) -> Vec<u8> {
    let mut writer = Writer::new();
    encode(function, given, &mut writer);
    writer.into_vec()
}

/// Reads the arguments of one call and works out how much memory each needs.
///
/// # Errors
/// [`DecodeError`] if the bytes are not arguments of this function, or one needs more than
/// [`LARGEST`] bytes.
pub fn decode<'a>(function: &Function, bytes: &'a [u8]) -> Result<Vec<Argument<'a>>, DecodeError> {
    let mut reader = Reader::new(bytes);
    let mut arguments = Vec::with_capacity(function.params.len());
    for param in function.params {
        arguments.push(match param {
            Param::Device => Argument::Device(reader.u32()?),
            Param::Number => Argument::Number(reader.u64()?),
            _ => match reader.u8()? {
                0 => Argument::Null,
                1 if *param == Param::Text => {
                    let text = reader.bytes()?;
                    Argument::Text(
                        CString::new(text)
                            .map_err(|_| invalid("a string with a zero inside", 0))?,
                    )
                }
                1 => Argument::Memory { room: 0, given: reader.bytes()? },
                value => return Err(invalid("pointer", value.into())),
            },
        });
    }
    reader.finish()?;
    for index in 0..arguments.len() {
        let Argument::Memory { given, .. } = arguments[index] else { continue };
        let room = match function.params[index] {
            Param::Input { size } | Param::Out { size } | Param::Both { size } => size,
            Param::Versioned { size } => {
                let version = given.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
                versioned_size(version, size)
            }
            Param::Count => 4,
            Param::Buffer { length } => elements(&arguments, length),
            Param::Array { count, size, .. } => elements(&arguments, count).saturating_mul(size),
            Param::Device | Param::Number | Param::Text => 0,
        };
        if room > LARGEST || given.len() > room {
            return Err(invalid("size of an argument", room.max(given.len()) as u64));
        }
        arguments[index] = Argument::Memory { room, given };
    }
    Ok(arguments)
}

/// What of an output's memory is worth sending back after the call; `contents` gives the memory of
/// a parameter.
pub fn written<'a>(
    function: &Function,
    arguments: &[Argument<'_>],
    index: usize,
    contents: impl Fn(usize) -> &'a [u8],
) -> &'a [u8] {
    let bytes = contents(index);
    match function.params[index] {
        Param::Buffer { .. } => match bytes.iter().position(|byte| *byte == 0) {
            Some(end) => &bytes[..=end],
            None => bytes,
        },
        Param::Array { count, size, .. } if function.params[count] == Param::Count => {
            let there = contents(count).first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes))
                as usize;
            let filled = there.min(elements(arguments, count)).saturating_mul(size);
            &bytes[..filled.min(bytes.len())]
        }
        _ => bytes,
    }
}

/// What a `Number` or a `Count` says.
fn elements(arguments: &[Argument<'_>], index: usize) -> usize {
    match &arguments[index] {
        // C's unsigned int, whatever is above it.
        Argument::Number(number) => *number as u32 as usize,
        Argument::Memory { given, .. } => {
            given.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes)) as usize
        }
        _ => 0,
    }
}

fn invalid(what: &'static str, value: u64) -> DecodeError {
    DecodeError::Invalid { what, value }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{FUNCTIONS, find};
    use proptest::prelude::*;

    #[test]
    fn arguments_arrive_with_the_memory_they_need() {
        let function = find("nvmlDeviceGetName").unwrap();
        let mut writer = Writer::new();
        encode(function, &[Given::Device(1), Given::Memory(&[]), Given::Number(96)], &mut writer);
        let bytes = writer.into_vec();
        let arguments = decode(function, &bytes).unwrap();
        assert_eq!(
            arguments,
            [Argument::Device(1), Argument::Memory { room: 96, given: &[] }, Argument::Number(96)]
        );
        let mut memory = [0; 96];
        memory[..3].copy_from_slice(b"GPU");
        assert_eq!(written(function, &arguments, 1, |_| &memory[..]), b"GPU\0");
    }

    #[test]
    fn structures_have_the_size_of_their_version() {
        let function = find("nvmlDeviceGetMemoryInfo_v2").unwrap();
        let mut given = [0; 40];
        given[..4].copy_from_slice(&0x0200_0028_u32.to_le_bytes());
        let mut writer = Writer::new();
        encode(function, &[Given::Device(0), Given::Memory(&given)], &mut writer);
        let bytes = writer.into_vec();
        assert_eq!(
            decode(function, &bytes).unwrap()[1],
            Argument::Memory { room: 40, given: &given }
        );
        // One that claims a smaller size than it sends.
        given[0] = 8;
        let mut writer = Writer::new();
        encode(function, &[Given::Device(0), Given::Memory(&given)], &mut writer);
        assert!(decode(function, &writer.into_vec()).is_err());
    }

    #[test]
    fn of_an_array_comes_back_what_is_there() {
        let function = find("nvmlDeviceGetSupportedMemoryClocks").unwrap();
        let (room, there) = (8_u32.to_le_bytes(), 2_u32.to_le_bytes());
        let mut writer = Writer::new();
        encode(
            function,
            &[Given::Device(0), Given::Memory(&room), Given::Memory(&[])],
            &mut writer,
        );
        let bytes = writer.into_vec();
        let arguments = decode(function, &bytes).unwrap();
        assert_eq!(arguments[2], Argument::Memory { room: 32, given: &[] });
        let clocks = [7; 32];
        let contents = |index| if index == 1 { &there[..] } else { &clocks[..] };
        assert_eq!(written(function, &arguments, 2, contents), &[7; 8]);
        // More than there is room for is never sent.
        let many = u32::MAX.to_le_bytes();
        let contents = |index| if index == 1 { &many[..] } else { &clocks[..] };
        assert_eq!(written(function, &arguments, 2, contents), &[7; 32]);
    }

    #[test]
    fn no_call_takes_much_memory() {
        let function = find("nvmlDeviceGetName").unwrap();
        let mut writer = Writer::new();
        encode(
            function,
            &[Given::Device(1), Given::Memory(&[]), Given::Number(u64::MAX)],
            &mut writer,
        );
        assert!(decode(function, &writer.into_vec()).is_err());
    }

    proptest! {
        #[test]
        fn any_bytes_are_taken_or_refused(index in 0..FUNCTIONS.len(), bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let function = &FUNCTIONS[index];
            if let Ok(arguments) = decode(function, &bytes) {
                prop_assert_eq!(arguments.len(), function.params.len());
                for argument in &arguments {
                    if let Argument::Memory { room, given } = argument {
                        prop_assert!(*room <= LARGEST && given.len() <= *room);
                    }
                }
            }
        }
    }
}
