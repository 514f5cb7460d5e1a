//! Types and operations that workers know, too.

use std::ffi::CStr;
use std::sync::OnceLock;

use outboard_wire::combine::{Combine, Element, Operation};

use crate::mpi::{Handle, form, optional_symbol};

/// Open MPI's name and MPICH's number.
type Named = (&'static CStr, Handle);

const ELEMENTS: [(Named, Element); 20] = [
    ((c"ompi_mpi_signed_char", 0x4c00_0118), Element::I8),
    ((c"ompi_mpi_unsigned_char", 0x4c00_0102), Element::U8),
    ((c"ompi_mpi_short", 0x4c00_0203), Element::I16),
    ((c"ompi_mpi_unsigned_short", 0x4c00_0204), Element::U16),
    ((c"ompi_mpi_int", 0x4c00_0405), Element::I32),
    ((c"ompi_mpi_unsigned", 0x4c00_0406), Element::U32),
    ((c"ompi_mpi_long", 0x4c00_0807), Element::I64),
    ((c"ompi_mpi_unsigned_long", 0x4c00_0808), Element::U64),
    ((c"ompi_mpi_long_long_int", 0x4c00_0809), Element::I64),
    ((c"ompi_mpi_unsigned_long_long", 0x4c00_0819), Element::U64),
    ((c"ompi_mpi_float", 0x4c00_040a), Element::F32),
    ((c"ompi_mpi_double", 0x4c00_080b), Element::F64),
    ((c"ompi_mpi_int8_t", 0x4c00_0137), Element::I8),
    ((c"ompi_mpi_int16_t", 0x4c00_0238), Element::I16),
    ((c"ompi_mpi_int32_t", 0x4c00_0439), Element::I32),
    ((c"ompi_mpi_int64_t", 0x4c00_083a), Element::I64),
    ((c"ompi_mpi_uint8_t", 0x4c00_013b), Element::U8),
    ((c"ompi_mpi_uint16_t", 0x4c00_023c), Element::U16),
    ((c"ompi_mpi_uint32_t", 0x4c00_043d), Element::U32),
    ((c"ompi_mpi_uint64_t", 0x4c00_083e), Element::U64),
];
const OPERATIONS: [(Named, Operation); 4] = [
    ((c"ompi_mpi_op_sum", 0x5800_0003), Operation::Sum),
    ((c"ompi_mpi_op_prod", 0x5800_0004), Operation::Product),
    ((c"ompi_mpi_op_min", 0x5800_0002), Operation::Least),
    ((c"ompi_mpi_op_max", 0x5800_0001), Operation::Greatest),
];

struct Kinds {
    elements: Vec<(Handle, Element)>,
    operations: Vec<(Handle, Operation)>,
}

fn kinds() -> &'static Kinds {
    static KINDS: OnceLock<Kinds> = OnceLock::new();
    KINDS.get_or_init(|| Kinds { elements: handles(&ELEMENTS), operations: handles(&OPERATIONS) })
}

fn handles<T: Copy>(all: &[(Named, T)]) -> Vec<(Handle, T)> {
    let handle = |(name, number): Named| {
        if form().has_numbers() { Some(number) } else { optional_symbol(name) }
    };
    all.iter().filter_map(|(named, what)| Some((handle(*named)?, *what))).collect()
}

/// What an operation makes of elements of a type, if workers know both.
pub(crate) fn combine(datatype: Handle, operation: Handle) -> Option<Combine> {
    let Kinds { elements, operations } = kinds();
    let (_, element) = elements.iter().find(|(handle, _)| form().same(*handle, datatype))?;
    let (_, operation) = operations.iter().find(|(handle, _)| form().same(*handle, operation))?;
    Some(Combine { element: *element, operation: *operation })
}

/// The handles of `MPI_INT` and `MPI_MIN`.
pub(crate) fn int_and_min() -> Option<(Handle, Handle)> {
    let Kinds { elements, operations } = kinds();
    let int = elements.iter().find(|(_, it)| *it == Element::I32)?.0;
    let least = operations.iter().find(|(_, it)| *it == Operation::Least)?.0;
    Some((int, least))
}
