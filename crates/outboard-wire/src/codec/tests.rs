use super::*;
use proptest::prelude::*;

fn round_trip<T>(value: &T)
where
    T: Encode + for<'a> Decode<'a> + PartialEq + core::fmt::Debug,
{
    let mut writer = Writer::new();
    writer.put(value);
    let bytes = writer.into_vec();
    assert_eq!(&decode_all::<T>(&bytes).unwrap(), value);
    for cut in 0..bytes.len() {
        assert!(decode_all::<T>(&bytes[..cut]).is_err(), "{cut} of {} bytes decoded", bytes.len());
    }
    let mut longer = bytes;
    longer.push(0);
    assert_eq!(decode_all::<T>(&longer), Err(DecodeError::Trailing { extra: 1 }));
}

proptest! {
    #[test]
    fn numbers_round_trip(a: u8, b: u16, c: u32, d: u64, e: i32, f: i64, g: usize) {
        round_trip(&a); round_trip(&b); round_trip(&c); round_trip(&d); round_trip(&e); round_trip(&f); round_trip(&g);
    }

    #[test]
    fn sequences_round_trip(
        text in ".{0,40}",
        words in proptest::collection::vec(any::<u64>(), 0..20),
        names in proptest::collection::vec(".{0,9}", 0..5),
        some in proptest::option::of(any::<i32>()),
        flag: bool,
        fixed: [u32; 3],
    ) {
        round_trip(&text); round_trip(&words); round_trip(&names); round_trip(&some); round_trip(&flag); round_trip(&fixed);
    }

    #[test]
    fn any_bytes_decode_or_fail(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = decode_all::<Vec<String>>(&bytes);
        let _ = decode_all::<Vec<Option<u64>>>(&bytes);
        let _ = decode_all::<&[u8]>(&bytes);
    }
}

#[test]
fn layout_is_little_endian() {
    let mut writer = Writer::new();
    writer.u16(0x0102);
    writer.u32(0x0304_0506);
    writer.bytes(&[7, 8]);
    assert_eq!(writer.as_slice(), [2, 1, 6, 5, 4, 3, 2, 0, 0, 0, 7, 8]);
}

#[test]
fn a_count_beyond_the_message_is_refused_before_allocation() {
    let mut writer = Writer::new();
    writer.u32(900_000);
    assert!(matches!(decode_all::<Vec<u64>>(writer.as_slice()), Err(DecodeError::Short { .. })));
    let mut writer = Writer::new();
    writer.u32(u32::MAX);
    assert!(matches!(decode_all::<Vec<()>>(writer.as_slice()), Err(DecodeError::TooLong { .. })));
}
