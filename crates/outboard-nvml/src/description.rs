//! What is said of a function.

use crate::FUNCTIONS;

/// A function of NVML that asks and changes nothing.
#[derive(Debug)]
pub struct Function {
    /// The exported name.
    pub name: &'static str,
    /// A server without NVML answers it from its driver library.
    pub driver: bool,
    /// Its parameters, in order.
    pub params: &'static [Param],
    /// The strings in the structures that it writes.
    pub texts: &'static [Text],
}

/// A string in a structure that is written. Sizes and offsets are in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Text {
    /// The position of the parameter that points to the structure, or to an array of them.
    pub param: usize,
    /// Size of the structure in the release described.
    pub element: usize,
    /// Where in it the string begins.
    pub offset: usize,
    /// The string's size, its end included.
    pub room: usize,
}

/// What a parameter is, and what of it travels. Sizes are in bytes; other parameters are named by
/// their position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Param {
    /// A device: its position in the session.
    Device,
    /// An integer or enum by value.
    Number,
    /// A string that is read.
    Text,
    /// A structure that is read.
    Input {
        /// Its size.
        size: usize,
    },
    /// What is only written.
    Out {
        /// Its size.
        size: usize,
    },
    /// What is read and written.
    Both {
        /// Its size.
        size: usize,
    },
    /// A structure that begins with its version, which the caller fills in and which holds the
    /// size: programs built for another release have another one.
    Versioned {
        /// The size in the release described.
        size: usize,
    },
    /// How many elements there is room for, and then how many there are.
    Count,
    /// A string that is written.
    Buffer {
        /// The parameter that says how much room there is.
        length: usize,
    },
    /// An array that is written.
    Array {
        /// The parameter that says how many elements there is room for: a `Count` or a `Number`.
        count: usize,
        /// Size of an element.
        size: usize,
        /// It is read as well.
        both: bool,
    },
}

impl Param {
    /// Whether something comes back through it.
    pub fn is_output(self) -> bool {
        !matches!(self, Param::Device | Param::Number | Param::Text | Param::Input { .. })
    }
}

/// The description of a function, by its exported name.
pub fn find(name: &str) -> Option<&'static Function> {
    FUNCTIONS
        .binary_search_by(|function| function.name.cmp(name))
        .ok()
        .map(|index| &FUNCTIONS[index])
}

/// The size of a structure with this version field, whose type has `size` bytes in the release
/// described. A version is the size and, in the top byte, a number; a few structures only have the
/// number.
pub fn versioned_size(version: u32, size: usize) -> usize {
    let (number, bytes) = (version >> 24, (version & 0x00ff_ffff) as usize);
    if number != 0 && bytes >= 4 { bytes } else { size }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptions_are_sound() {
        assert!(FUNCTIONS.windows(2).all(|pair| pair[0].name < pair[1].name));
        for function in &FUNCTIONS {
            assert_eq!(find(function.name).map(|found| found.name), Some(function.name));
            for text in function.texts {
                assert!(
                    function.params[text.param].is_output()
                        && text.offset + text.room <= text.element
                );
            }
            for param in function.params {
                match *param {
                    Param::Input { size } | Param::Out { size } | Param::Both { size } => {
                        assert!(size > 0)
                    }
                    Param::Versioned { size } => assert!(size > 4, "{}", function.name),
                    Param::Buffer { length } => assert_eq!(function.params[length], Param::Number),
                    Param::Array { count, size, .. } => {
                        assert!(
                            matches!(function.params[count], Param::Number | Param::Count)
                                && size > 0
                        );
                    }
                    Param::Device | Param::Number | Param::Text | Param::Count => {}
                }
            }
        }
        assert!(
            find("nvmlDeviceSetPowerManagementLimit").is_none(),
            "what changes a GPU is not forwarded"
        );
    }

    #[test]
    fn versions_tell_sizes() {
        assert_eq!(versioned_size(0x0200_0028, 99), 40);
        assert_eq!(versioned_size(1, 99), 99);
        assert_eq!(versioned_size(0, 99), 99);
    }
}
