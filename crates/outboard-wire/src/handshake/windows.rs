//! What client and server say of the addresses of a session's devices.

use super::Kind;
use crate::codec::{Decode, DecodeError, Encode, Reader, Writer};
use crate::window::Window;

/// The kind of these parts: [`Acceptable`] in the hello of a session, the session's [`Window`] in
/// its welcome.
pub const WINDOWS: Kind = Kind(7);

/// The windows that the client accepts, those that it likes best first. A client that says nothing
/// accepts any; one that accepts none has something of its own in each.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Acceptable(pub Vec<Window>);

impl Acceptable {
    /// The most that one may name.
    pub const MOST: u32 = 256;
}

impl Encode for Acceptable {
    fn encode(&self, writer: &mut Writer) {
        writer.put(&self.0);
    }
}

impl<'a> Decode<'a> for Acceptable {
    fn decode(reader: &mut Reader<'a>) -> Result<Acceptable, DecodeError> {
        let count = reader.u32()?;
        if count > Acceptable::MOST {
            return Err(DecodeError::Invalid {
                what: "number of windows of addresses",
                value: count.into(),
            });
        }
        (0..count).map(|_| reader.get()).collect::<Result<_, _>>().map(Acceptable)
    }
}

#[cfg(test)]
mod tests {
    use super::super::Extensions;
    use super::*;

    #[test]
    fn lists_travel_and_are_bounded() {
        let mut more = Extensions::default();
        for list in [
            Vec::new(),
            Window::all().collect(),
            vec![Window::numbered(0).unwrap(); Acceptable::MOST as usize],
        ] {
            more.set(WINDOWS, &Acceptable(list.clone()));
            assert_eq!(more.get(WINDOWS), Ok(Some(Acceptable(list))));
        }
        more.set(WINDOWS, &vec![Window::numbered(0).unwrap(); Acceptable::MOST as usize + 1]);
        assert!(more.get::<Acceptable>(WINDOWS).is_err());
        more.set(WINDOWS, &u32::MAX);
        assert!(more.get::<Acceptable>(WINDOWS).is_err());
        more.set(WINDOWS, &(2_u32));
        assert!(more.get::<Acceptable>(WINDOWS).is_err(), "a list that is too short");
        more.set(WINDOWS, &Window::numbered(7).unwrap());
        assert_eq!(more.get(WINDOWS), Ok(Window::numbered(7)));
    }
}
