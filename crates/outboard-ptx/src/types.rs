//! Scalar types and state spaces of PTX.

use std::fmt;

/// A scalar type as written on an instruction or a declaration (`.u32`, `.f16x2`, ...).
///
/// The last group names formats that only conversions use; a register that holds one is declared
/// `.b16` or `.b32`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "a variant without docs is the PTX type of that name")]
pub enum Type {
    /// A predicate: one bit.
    Pred,
    B8,
    B16,
    B32,
    B64,
    B128,
    U8,
    U16,
    U32,
    U64,
    S8,
    S16,
    S32,
    S64,
    F16,
    F16x2,
    BF16,
    BF16x2,
    F32,
    F64,
    /// Packed pairs of 32-bit floats (`.f32x2`), held in a 64-bit register.
    F32x2,
    /// Packed pairs of 16-bit integers, held in a 32-bit register.
    U16x2,
    S16x2,
    /// TensorFloat-32: an `f32` pattern with a 10-bit fraction.
    Tf32,
    /// Pairs of 8-bit floats, held in a 16-bit register.
    E4m3x2,
    E5m2x2,
}

impl Type {
    /// The type named by `name`, written without the leading dot.
    pub fn from_name(name: &str) -> Option<Type> {
        Some(match name {
            "pred" => Type::Pred,
            "b8" => Type::B8,
            "b16" => Type::B16,
            "b32" => Type::B32,
            "b64" => Type::B64,
            "b128" => Type::B128,
            "u8" => Type::U8,
            "u16" => Type::U16,
            "u32" => Type::U32,
            "u64" => Type::U64,
            "s8" => Type::S8,
            "s16" => Type::S16,
            "s32" => Type::S32,
            "s64" => Type::S64,
            "f16" => Type::F16,
            "f16x2" => Type::F16x2,
            "bf16" => Type::BF16,
            "bf16x2" => Type::BF16x2,
            "f32" => Type::F32,
            "f64" => Type::F64,
            "f32x2" => Type::F32x2,
            "u16x2" => Type::U16x2,
            "s16x2" => Type::S16x2,
            "tf32" => Type::Tf32,
            "e4m3x2" => Type::E4m3x2,
            "e5m2x2" => Type::E5m2x2,
            _ => return None,
        })
    }

    /// The name as written in PTX, without the leading dot.
    pub fn name(self) -> &'static str {
        match self {
            Type::Pred => "pred",
            Type::B8 => "b8",
            Type::B16 => "b16",
            Type::B32 => "b32",
            Type::B64 => "b64",
            Type::B128 => "b128",
            Type::U8 => "u8",
            Type::U16 => "u16",
            Type::U32 => "u32",
            Type::U64 => "u64",
            Type::S8 => "s8",
            Type::S16 => "s16",
            Type::S32 => "s32",
            Type::S64 => "s64",
            Type::F16 => "f16",
            Type::F16x2 => "f16x2",
            Type::BF16 => "bf16",
            Type::BF16x2 => "bf16x2",
            Type::F32 => "f32",
            Type::F64 => "f64",
            Type::F32x2 => "f32x2",
            Type::U16x2 => "u16x2",
            Type::S16x2 => "s16x2",
            Type::Tf32 => "tf32",
            Type::E4m3x2 => "e4m3x2",
            Type::E5m2x2 => "e5m2x2",
        }
    }

    /// Size in bytes. A predicate counts as one byte.
    pub fn size(self) -> u32 {
        match self {
            Type::Pred | Type::B8 | Type::U8 | Type::S8 => 1,
            Type::B16
            | Type::U16
            | Type::S16
            | Type::F16
            | Type::BF16
            | Type::E4m3x2
            | Type::E5m2x2 => 2,
            Type::B32
            | Type::U32
            | Type::S32
            | Type::F32
            | Type::F16x2
            | Type::BF16x2
            | Type::U16x2
            | Type::S16x2
            | Type::Tf32 => 4,
            Type::B64 | Type::U64 | Type::S64 | Type::F64 | Type::F32x2 => 8,
            Type::B128 => 16,
        }
    }

    /// Width in bits.
    pub fn bits(self) -> u32 {
        self.size() * 8
    }

    /// True for `.sN` (and for the packed `.s16x2`).
    pub fn is_signed(self) -> bool {
        matches!(self, Type::S8 | Type::S16 | Type::S32 | Type::S64 | Type::S16x2)
    }

    /// True for `.uN` and `.sN`.
    pub fn is_integer(self) -> bool {
        matches!(
            self,
            Type::U8
                | Type::U16
                | Type::U32
                | Type::U64
                | Type::S8
                | Type::S16
                | Type::S32
                | Type::S64
        )
    }

    /// True for the untyped `.bN`.
    pub fn is_untyped(self) -> bool {
        matches!(self, Type::B8 | Type::B16 | Type::B32 | Type::B64 | Type::B128)
    }

    /// True for scalar and packed floating-point types.
    pub fn is_float(self) -> bool {
        matches!(
            self,
            Type::F16
                | Type::F16x2
                | Type::BF16
                | Type::BF16x2
                | Type::F32
                | Type::F64
                | Type::F32x2
                | Type::Tf32
                | Type::E4m3x2
                | Type::E5m2x2
        )
    }

    /// The type of one lane of a packed type, and the type itself otherwise.
    pub fn lane(self) -> Type {
        match self {
            Type::F16x2 => Type::F16,
            Type::BF16x2 => Type::BF16,
            Type::F32x2 => Type::F32,
            Type::U16x2 => Type::U16,
            Type::S16x2 => Type::S16,
            other => other,
        }
    }

    /// True for the two-lane types on which arithmetic is defined.
    pub fn is_packed(self) -> bool {
        self.lane() != self
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, ".{}", self.name())
    }
}

/// A state space. `Generic` is the space of an access that names none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Space {
    /// Any of the others; the address tells which.
    Generic,
    /// Memory that all threads and other kernels access.
    Global,
    /// Memory that kernels only read, at most 64 KiB of a module.
    Const,
    /// Memory of a block.
    Shared,
    /// Memory of a thread.
    Local,
    /// Parameters and results of kernels and functions.
    Param,
}

impl Space {
    /// The name as written in PTX, without the leading dot.
    pub fn name(self) -> &'static str {
        match self {
            Space::Generic => "generic",
            Space::Global => "global",
            Space::Const => "const",
            Space::Shared => "shared",
            Space::Local => "local",
            Space::Param => "param",
        }
    }
}
