//! What a message's elements become together with those that are in its place already.

/// The type of an element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Element {
    I8,
    U8,
    I16,
    U16,
    I32,
    U32,
    I64,
    U64,
    F32,
    F64,
}

/// What is done with two elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Operation {
    Sum,
    Product,
    Least,
    Greatest,
}

/// How elements are combined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Combine {
    /// Their type.
    pub element: Element,
    /// What is done.
    pub operation: Operation,
}

const ELEMENTS: [Element; 10] = [
    Element::I8,
    Element::U8,
    Element::I16,
    Element::U16,
    Element::I32,
    Element::U32,
    Element::I64,
    Element::U64,
    Element::F32,
    Element::F64,
];
const OPERATIONS: [Operation; 4] =
    [Operation::Sum, Operation::Product, Operation::Least, Operation::Greatest];

impl Element {
    /// Bytes of one.
    pub fn bytes(self) -> usize {
        match self {
            Element::I8 | Element::U8 => 1,
            Element::I16 | Element::U16 => 2,
            Element::I32 | Element::U32 | Element::F32 => 4,
            Element::I64 | Element::U64 | Element::F64 => 8,
        }
    }
}

impl Combine {
    /// Its number, which is not 0.
    pub fn code(self) -> u32 {
        1 + self.element as u32 * OPERATIONS.len() as u32 + self.operation as u32
    }

    /// What has that number.
    pub fn of(code: u32) -> Option<Combine> {
        let place = code.checked_sub(1)? as usize;
        let element = *ELEMENTS.get(place / OPERATIONS.len())?;
        Some(Combine { element, operation: OPERATIONS[place % OPERATIONS.len()] })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_name_what_they_are_of() {
        let mut codes = Vec::new();
        for element in ELEMENTS {
            for operation in OPERATIONS {
                let combine = Combine { element, operation };
                assert_eq!(Combine::of(combine.code()), Some(combine));
                codes.push(combine.code());
            }
        }
        codes.dedup();
        assert_eq!((codes.len(), codes[0]), (ELEMENTS.len() * OPERATIONS.len(), 1));
        assert_eq!((Combine::of(0), Combine::of(41)), (None, None));
    }
}
