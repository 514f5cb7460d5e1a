use super::*;

#[test]
fn pages_are_shared_by_ranges_and_nothing_else_can_be_named() {
    let mut mapped = Mapped::default();
    mapped.runs.insert(0x10000, Run { bytes: 0x2000, users: 1, origin: None });
    mapped.bytes = 0x2000;
    mapped.open.insert(0x10800, 0x1000, ContextId(1));
    assert_eq!(mapped.missing(&(0xf000..0x14000)), [0xf000..0x10000, 0x12000..0x14000]);
    assert_eq!(mapped.missing(&(0x10000..0x11000)), []);
    assert_eq!(mapped.missing(&(0x11000..0x13000)), std::slice::from_ref(&(0x12000..0x13000)));
    assert_eq!(mapped.registered_from(0x10800), Some(0x1800));
    assert_eq!([0xffff, 0x12000].map(|address| mapped.registered_from(address)), [None; 2]);
    assert!(mapped.check(0x10800, 0x1000).is_ok());
    for (address, bytes) in
        [(0x10800, 0x1001), (0x10700, 1), (0x11800, 1), (0x10fff, usize::MAX), (0, 1)]
    {
        assert!(mapped.check(address, bytes).is_err(), "{address:#x} {bytes:#x}");
    }
    assert!(mapped.close(0x10800, 1).is_err() && mapped.close(0x10000, 0x1000).is_err());
    assert_eq!(mapped.take_unused().runs, []);
    mapped.close(0x10800, 0x1000).unwrap();
    assert!(mapped.check(0x10800, 1).is_err());
    assert_eq!(mapped.take_unused().runs, std::slice::from_ref(&(0x10000..0x12000)));
    assert_eq!((mapped.take_unused().runs, mapped.bytes), (Vec::new(), 0));
    for (address, bytes) in
        [(0, 10), (100, 10), (0x1000, 0), (u64::MAX - 10, 100), (u64::MAX - 10, 5)]
    {
        assert!(pages(address, bytes).is_err(), "{address:#x} {bytes:#x}");
    }
}

#[test]
fn pages_that_were_kept_are_zeros_when_they_are_opened_again() {
    // SAFETY: no function is found, so that none is called.
    let table = unsafe { Table::load(|_| core::ptr::null()) };
    let access = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new mapping at an address of the kernel's choice.
    let memory =
        unsafe { mmap_anonymous(core::ptr::null_mut(), 0x1000, access, MapFlags::PRIVATE) }
            .unwrap();
    let address = memory as u64;
    let mut mapped = Mapped::default();
    mapped.runs.insert(address, Run { bytes: 0x1000, users: 1, origin: None });
    mapped.open.insert(address, 0x1000, ContextId(1));
    mapped.write(address, &[], &[7; 8]).unwrap();
    mapped.close(address, 0x1000).unwrap();
    for _ in 0..2 {
        assert!(
            mapped.add(&table, ContextId(1), address, 0x1000, Pages::Own).unwrap().is_empty(),
            "no pages are made"
        );
        assert_eq!(mapped.read(address, 8).unwrap(), [0; 8]);
        mapped.write(address, &[], &[8; 8]).unwrap();
        mapped.close(address, 0x1000).unwrap();
    }
}

#[test]
fn words_are_written_by_mask() {
    let memory = Box::new([0u32; 16]);
    let address = memory.as_ptr() as u64;
    let mut mapped = Mapped::default();
    mapped.open.insert(address, 64, ContextId(1));
    mapped.write(address + 4, &[0b101], &[1; 12]).unwrap();
    assert_eq!(
        mapped.read(address, 20).unwrap(),
        [0, 0, 0, 0, 1, 1, 1, 1, 0, 0, 0, 0, 1, 1, 1, 1, 0, 0, 0, 0]
    );
    // Eight words whose bits are all set go together; those of the next eight do not.
    mapped.write(address + 16, &[0xff, 0b10], &[2; 40]).unwrap();
    assert_eq!(
        mapped.read(address + 12, 44).unwrap(),
        [&[1; 4][..], &[2; 32], &[0; 4], &[2; 4]].concat()
    );
    mapped.write(address + 1, &[], &[9]).unwrap();
    assert_eq!(mapped.read(address, 2).unwrap(), [0, 9]);
    assert!(mapped.write(address + 2, &[1], &[1; 4]).is_err(), "words are aligned");
    assert!(mapped.write(address, &[1], &[1; 64]).is_err(), "a mask that is too short");
    assert!(mapped.write(address + 60, &[], &[1; 5]).is_err() && mapped.read(address, 65).is_err());
    assert_eq!(
        mapped.read_all(&[(UnifiedPtr(address + 20), 4), (UnifiedPtr(address), 2)], 6).unwrap(),
        [2, 2, 2, 2, 0, 9]
    );
    for (places, most) in
        [([(address, 4), (address + 60, 5)], 64), ([(address, 4), (address, 4)], 7)]
    {
        let places = places.map(|(address, bytes)| (UnifiedPtr(address), bytes));
        assert!(mapped.read_all(&places, most).is_err(), "{places:?}");
    }
}
