//! Arithmetic that the processor does not have: directed rounding, 16-bit floats, the approximate
//! functions.

pub(crate) mod approx;
pub(crate) mod narrow;
pub(crate) mod soft;
