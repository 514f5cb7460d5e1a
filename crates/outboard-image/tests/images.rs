//! Recorded images, and what damage does to them.

use outboard_image::{
    Compression, Error, Extent, Format, ImageHash, Kernel, Kind, Memory, Param, Specificity,
    best_elf, best_ptx, elf_kernels, entries, format_of, kernels, locate, narrowed,
};
use proptest::prelude::*;

const ZSTD: &[u8] = include_bytes!("data/zstd.fatbin");
const LZ4: &[u8] = include_bytes!("data/lz4.fatbin");
const LARGE: &[u8] = include_bytes!("data/large.cubin");
const PTX: &[u8] = b"// a module\n.version 9.0\n.target sm_75\n.address_size 64\n\
    .visible .entry one(.param .u64 .ptr .global .align 1 a, .param .align 8 .b8 b[24], .param .u8 c)\n{ ret; }\n\
    .entry two { ret; } /* .entry three(.param .u8 x) */\0";

/// The kernels of `kernels.cu`, by name.
fn expected() -> Vec<Kernel> {
    let param = |offset, size| Param { offset, size };
    let kernel = |name: &str, params: &[Param], params_size| Kernel {
        name: name.to_owned(),
        params: params.to_vec(),
        params_size,
    };
    let axpy = [param(0, 8), param(8, 8), param(16, 4), param(20, 4), param(24, 16)];
    vec![
        kernel("axpy", &axpy, 40),
        kernel("fill", &[param(0, 1), param(8, 8)], 16),
        kernel("nop", &[], 0),
    ]
}

fn sorted(mut kernels: Vec<Kernel>) -> Vec<Kernel> {
    kernels.sort_by(|a, b| a.name.cmp(&b.name));
    kernels
}

/// Memory with images at addresses of their own, as a process has it.
struct Process(Vec<(u64, Vec<u8>)>);

impl Memory for Process {
    fn read(&self, addr: u64, buf: &mut [u8]) -> bool {
        self.0.iter().any(|(start, bytes)| addr >= *start && bytes[..].read(addr - start, buf))
    }
}

#[test]
fn a_container_is_measured_and_listed() {
    let located = locate(ZSTD, 0).unwrap();
    assert_eq!(located.format, Format::Fatbin);
    assert_eq!(located.image, Extent { addr: 0, len: ZSTD.len() as u64 });
    let found: Vec<_> = entries(ZSTD).map(Result::unwrap).collect();
    let summary: Vec<_> =
        found.iter().map(|entry| (entry.kind, entry.sm, entry.specificity)).collect();
    assert_eq!(
        summary,
        [
            (Kind::Ptx, 75, Specificity::Portable),
            (Kind::Elf, 75, Specificity::Portable),
            (Kind::Ptx, 90, Specificity::Portable),
            (Kind::Elf, 90, Specificity::Exact),
        ]
    );
    assert_eq!(found[0].version, (9, 0));
    for entry in &found {
        assert_eq!(entry.compression, Some(Compression::Zstd));
        let contents = entry.contents().unwrap();
        let format = if entry.kind == Kind::Ptx { Format::Ptx } else { Format::Elf };
        assert_eq!(format_of(&contents), Ok(format));
        assert_eq!(sorted(kernels(&contents, 75).unwrap()), expected());
    }
}

#[test]
fn containers_may_follow_one_another() {
    let mut both = ZSTD.to_vec();
    both.resize(both.len().next_multiple_of(8), 0);
    both.extend_from_slice(LZ4);
    let found: Vec<_> = entries(&both).map(Result::unwrap).collect();
    assert_eq!(found.len(), 5);
    assert_eq!(found[4].compression, Some(Compression::Lz4));
    assert_eq!(found[4].contents().unwrap(), found[0].contents().unwrap());
}

#[test]
fn the_best_program_for_a_device_is_chosen() {
    let ptx = |sm| best_ptx(ZSTD, sm).unwrap().map(|entry| entry.sm);
    let elf = |sm| best_elf(ZSTD, sm).unwrap().map(|entry| entry.sm);
    assert_eq!(
        (ptx(70), ptx(75), ptx(89), ptx(90), ptx(120)),
        (None, Some(75), Some(75), Some(90), Some(90))
    );
    assert_eq!((elf(70), elf(75), elf(80), elf(90)), (None, Some(75), None, Some(90)));
}

#[test]
fn parameters_come_from_either_kind_of_program() {
    assert_eq!(sorted(kernels(ZSTD, 75).unwrap()), expected());
    assert_eq!(sorted(kernels(LZ4, 90).unwrap()), expected());
    let large = elf_kernels(LARGE).unwrap();
    assert_eq!(large.len(), 1);
    assert_eq!(large[0].params, [Param { offset: 0, size: 5004 }, Param { offset: 5008, size: 8 }]);
    assert_eq!(large[0].params_size, 5016);
    let text = kernels(PTX, 75).unwrap();
    assert_eq!(text.len(), 2);
    assert_eq!(text[0].name, "one");
    let want = [
        Param { offset: 0, size: 8 },
        Param { offset: 8, size: 24 },
        Param { offset: 32, size: 1 },
    ];
    assert_eq!(text[0].params, want);
    assert_eq!((text[1].name.as_str(), text[1].params_size), ("two", 0));
}

#[test]
fn wrappers_lead_to_their_containers() {
    let word = |value: u64| value.to_le_bytes().to_vec();
    let mut wrapper = 0x4662_43B1u32.to_le_bytes().to_vec();
    wrapper.extend(1u32.to_le_bytes());
    wrapper.extend(word(0x5000));
    wrapper.extend(word(0));
    let mut memory =
        Process(vec![(0x1000, wrapper.clone()), (0x5000, ZSTD.to_vec()), (0x9000, LZ4.to_vec())]);
    let located = locate(&memory, 0x1000).unwrap();
    assert!(located.wrapped && located.unlinked.is_empty());
    assert_eq!(located.image, Extent { addr: 0x5000, len: ZSTD.len() as u64 });

    wrapper[4] = 2;
    wrapper[16..].copy_from_slice(&word(0x2000));
    memory.0[0].1 = wrapper;
    memory.0.push((0x2000, [word(0x9000), word(0x5000), word(0)].concat()));
    let located = locate(&memory, 0x1000).unwrap();
    let lens: Vec<_> = located.unlinked.iter().map(|extent| (extent.addr, extent.len)).collect();
    assert_eq!(lens, [(0x9000, LZ4.len() as u64), (0x5000, ZSTD.len() as u64)]);
}

#[test]
fn raw_images_are_measured() {
    assert_eq!(locate(LARGE, 0).unwrap().image.len, LARGE.len() as u64);
    assert_eq!(locate(LARGE, 0).unwrap().format, Format::Elf);
    let text = locate(PTX, 0).unwrap();
    assert_eq!((text.format, text.image.len), (Format::Ptx, PTX.len() as u64 - 1));
    // A text longer than a page, at an odd address, ending where memory ends.
    let mut long = PTX[..PTX.len() - 1].repeat(60);
    let len = long.len() as u64;
    long.push(0);
    let memory = Process(vec![(0x1003, long)]);
    assert_eq!(locate(&memory, 0x1003).unwrap().image.len, len);
}

#[test]
fn what_is_no_image_is_refused() {
    assert_eq!(locate(&b"\x01\x02\x03\x04\x05"[..], 0), Err(Error::NotAnImage));
    assert!(matches!(locate(&b".version 9.0"[..], 0), Err(Error::Unreadable { .. })));
    assert!(matches!(locate(ZSTD, u64::MAX - 1), Err(Error::Unreadable { .. })));
    assert_eq!(format_of(&[]), Err(Error::NotAnImage));
    assert_eq!(format_of(&[0; 64]), Err(Error::NotAnImage));
}

#[test]
fn hashes_tell_contents_apart() {
    let elsewhere = ZSTD.to_vec();
    assert_eq!(ImageHash::of(ZSTD), ImageHash::of(&elsewhere));
    assert_ne!(ImageHash::of(ZSTD), ImageHash::of(LZ4));
    assert_eq!(ImageHash::of_pieces([&ZSTD[..100], &[], &ZSTD[100..]]), ImageHash::of(ZSTD));
    assert_eq!(ImageHash::of(b"").to_string().len(), 64);
}

/// What is left of an image for a device, whole.
fn for_device(image: &[u8], sm: u32) -> Option<Vec<u8>> {
    let narrowed = narrowed(image, sm)?;
    let whole: Vec<u8> = narrowed.pieces().flatten().copied().collect();
    assert_eq!(whole.len(), narrowed.len());
    Some(whole)
}

#[test]
fn what_a_device_cannot_use_is_left_out() {
    let kept = |sm| {
        let image = for_device(ZSTD, sm)?;
        // It is a container like any other.
        assert_eq!(locate(&image[..], 0).unwrap().image.len, image.len() as u64);
        assert_eq!(sorted(kernels(&image, sm).unwrap()), expected());
        assert_eq!(for_device(&image, sm), None, "nothing is left to leave out");
        let originals: Vec<_> = entries(ZSTD).map(Result::unwrap).collect();
        let entries: Vec<_> = entries(&image).map(Result::unwrap).collect();
        assert!(
            entries.iter().all(|entry| originals.iter().any(|original| original.raw == entry.raw))
        );
        Some(entries.iter().map(|entry| (entry.kind, entry.sm)).collect::<Vec<_>>())
    };
    assert_eq!(kept(75), Some(vec![(Kind::Ptx, 75), (Kind::Elf, 75)]));
    // The machine code of 9.0 is for that very architecture.
    assert_eq!(kept(90), Some(vec![(Kind::Ptx, 90), (Kind::Elf, 90)]));
    assert_eq!(kept(100), Some(vec![(Kind::Ptx, 90)]));
    assert_eq!(kept(89), Some(vec![(Kind::Ptx, 75)]));
    // Nothing for the device: the driver is to say so.
    assert_eq!(kept(60), None);
}

#[test]
fn what_is_no_single_container_stays_whole() {
    for image in [LARGE, PTX, &[], &ZSTD[..ZSTD.len() - 1], &[ZSTD, LZ4].concat()] {
        assert_eq!(narrowed(image, 90), None);
    }
}

/// Every way into an image, as a caller would use it. Results do not matter: nothing may panic.
fn exercise(image: &[u8]) {
    if let Ok(located) = locate(image, 0)
        && let Some(whole) = image.get(..located.image.len as usize)
    {
        let _ = kernels(whole, 90);
    }
    let _ = format_of(image);
    let _ = for_device(image, 90);
    let _ = kernels(image, 75);
    for entry in entries(image).flatten() {
        if let Ok(contents) = entry.contents() {
            let _ = kernels(&contents, 75);
        }
    }
}

proptest! {
    #[test]
    fn damaged_images_never_panic(
        which in 0usize..4,
        edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..12),
        cut in any::<prop::sample::Index>(),
        truncate in any::<bool>(),
    ) {
        let mut image = [ZSTD, LZ4, LARGE, PTX][which].to_vec();
        for (at, value) in edits {
            let at = at.index(image.len());
            image[at] = value;
        }
        if truncate {
            image.truncate(cut.index(image.len()));
        }
        exercise(&image);
    }

    #[test]
    fn noise_behind_a_magic_number_never_panics(which in 0usize..3, noise in prop::collection::vec(any::<u8>(), 0..300)) {
        let magic: &[u8] = [&[0xB1, 0x43, 0x62, 0x46][..], &[0x50, 0xED, 0x55, 0xBA, 1, 0, 16, 0], b"\x7fELF\x02\x01"][which];
        exercise(&[magic, &noise].concat());
    }
}
