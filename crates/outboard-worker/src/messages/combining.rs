//! Elements of a message together with those that are in its place.

use outboard_wire::combine::{Combine, Element, Operation};

/// A number that can be combined.
trait Number: Copy {
    fn combined(self, other: Self, operation: Operation) -> Self;
}

macro_rules! integers {
    ($($type:ty),*) => {$(
        impl Number for $type {
            fn combined(self, other: $type, operation: Operation) -> $type {
                match operation {
                    Operation::Sum => self.wrapping_add(other),
                    Operation::Product => self.wrapping_mul(other),
                    Operation::Least => self.min(other),
                    Operation::Greatest => self.max(other),
                }
            }
        }
    )*};
}
integers!(i8, u8, i16, u16, i32, u32, i64, u64);

macro_rules! floats {
    ($($type:ty),*) => {$(
        impl Number for $type {
            // As MPIs compare: what is not a number stays if it is the second one.
            fn combined(self, other: $type, operation: Operation) -> $type {
                match operation {
                    Operation::Sum => self + other,
                    Operation::Product => self * other,
                    Operation::Least => if self < other { self } else { other },
                    Operation::Greatest => if self > other { self } else { other },
                }
            }
        }
    )*};
}
floats!(f32, f64);

/// Makes of each element of `come`, and the one of `there`, what the operation makes of the two.
pub(super) fn combine(combine: Combine, come: &mut [u8], there: &[u8]) {
    macro_rules! each {
        ($type:ty) => {{
            const BYTES: usize = size_of::<$type>();
            let (come, _) = come.as_chunks_mut::<BYTES>();
            let (there, _) = there.as_chunks::<BYTES>();
            for (come, there) in come.iter_mut().zip(there) {
                let (new, old) = (<$type>::from_ne_bytes(*come), <$type>::from_ne_bytes(*there));
                *come = new.combined(old, combine.operation).to_ne_bytes();
            }
        }};
    }
    match combine.element {
        Element::I8 => each!(i8),
        Element::U8 => each!(u8),
        Element::I16 => each!(i16),
        Element::U16 => each!(u16),
        Element::I32 => each!(i32),
        Element::U32 => each!(u32),
        Element::I64 => each!(i64),
        Element::U64 => each!(u64),
        Element::F32 => each!(f32),
        Element::F64 => each!(f64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn combined(element: Element, operation: Operation, come: &[u8], there: &[u8]) -> Vec<u8> {
        let mut come = come.to_vec();
        combine(Combine { element, operation }, &mut come, there);
        come
    }

    #[test]
    fn elements_are_combined_by_their_types() {
        let (all, small) = (0xffff_ffff_u32.to_ne_bytes(), 2_u32.to_ne_bytes());
        for (element, operation, result) in [
            (Element::I32, Operation::Sum, 1_u32),
            (Element::U32, Operation::Product, 0xffff_fffe),
            (Element::I32, Operation::Least, 0xffff_ffff),
            (Element::U32, Operation::Least, 2),
            (Element::I32, Operation::Greatest, 2),
            (Element::U32, Operation::Greatest, 0xffff_ffff),
        ] {
            assert_eq!(combined(element, operation, &all, &small), result.to_ne_bytes());
        }
        let floats = |values: [f64; 2]| values.map(f64::to_ne_bytes).concat();
        let sum =
            combined(Element::F64, Operation::Sum, &floats([1.5, -2.0]), &floats([0.25, 1e300]));
        assert_eq!(sum, floats([1.75, 1e300]));
        assert_eq!(combined(Element::U8, Operation::Sum, &[200, 1, 7], &[100, 2, 0]), [44, 3, 7]);
        assert_eq!(combined(Element::I8, Operation::Product, &[100], &[3]), [44]);
    }
}
