//! Which trace a client's process is part of: a part of its hello, so that the job's trace goes on
//! in its worker.

use super::Kind;
use crate::codec::{Decode, DecodeError, Encode, Reader, Writer};

/// The part of a hello that carries a [`TraceParent`].
pub const TRACE: Kind = Kind(4);

/// A span of somebody else's, by the identifiers of W3C's Trace Context.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceParent {
    /// The trace; not 0.
    pub trace: u128,
    /// The span in it; not 0.
    pub span: u64,
    /// Whether whoever began it records it.
    pub sampled: bool,
}

impl TraceParent {
    /// Reads a `traceparent`: `00-` and 32, 16 and 2 hexadecimal digits with dashes between. A
    /// later version may have more behind that.
    pub fn parse(text: &str) -> Option<TraceParent> {
        let mut parts = text.trim().split('-');
        let mut hex = |digits: usize| {
            let part = parts.next()?;
            let plain = part.len() == digits
                && part.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
            if plain { u128::from_str_radix(part, 16).ok() } else { None }
        };
        let (version, trace, span, flags) = (hex(2)?, hex(32)?, hex(16)?, hex(2)?);
        let rest = parts.next().is_some();
        let span = u64::try_from(span).ok()?;
        let valid = version != 0xff && trace != 0 && span != 0 && (version != 0 || !rest);
        valid.then_some(TraceParent { trace, span, sampled: flags & 1 != 0 })
    }
}

impl Encode for TraceParent {
    fn encode(&self, writer: &mut Writer) {
        writer.u128(self.trace);
        writer.u64(self.span);
        writer.put(&self.sampled);
    }
}

impl<'a> Decode<'a> for TraceParent {
    fn decode(reader: &mut Reader<'a>) -> Result<TraceParent, DecodeError> {
        Ok(TraceParent { trace: reader.u128()?, span: reader.u64()?, sampled: reader.get()? })
    }
}

#[cfg(test)]
mod tests {
    use super::super::Extensions;
    use super::*;

    #[test]
    fn what_the_standard_writes_is_read_and_travels() {
        let parent =
            TraceParent::parse("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01").unwrap();
        let wanted = TraceParent {
            trace: 0x0af7651916cd43dd8448eb211c80319c,
            span: 0xb7ad6b7169203331,
            sampled: true,
        };
        assert_eq!(parent, wanted);
        let mut more = Extensions::default();
        more.set(TRACE, &parent);
        assert_eq!(more.get(TRACE), Ok(Some(parent)));
        assert!(
            TraceParent::parse("01-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00-later")
                .is_some()
        );
    }

    #[test]
    fn what_it_does_not_write_is_ignored() {
        let (trace, span) = ("0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331");
        for text in [
            String::new(),
            "00".to_owned(),
            format!("00-{trace}-{span}"),
            format!("ff-{trace}-{span}-01"),
            format!("00-{trace}-{span}-01-more"),
            format!("00-{}-{span}-01", "0".repeat(32)),
            format!("00-{trace}-{}-01", "0".repeat(16)),
            format!("00-{}-{span}-01", trace.to_uppercase()),
            format!("00-+{}-{span}-01", &trace[1..]),
            format!("00-{trace}é-{span}-01"),
        ] {
            assert_eq!(TraceParent::parse(&text), None, "{text}");
        }
    }
}
