use outboard_ptx::ir::{Boundary, Geometry};

use super::*;

fn sampler(addressing: Addressing, linear: bool, normalized: bool) -> Sampler {
    Sampler {
        addressing: [addressing; 3],
        linear,
        normalized,
        fractions: false,
        linear_levels: false,
        level: [0.0; 3],
        border: [9.0; 4],
    }
}

fn texture(values: &[f32], size: [u64; 3], sampler: Sampler) -> Texture {
    let strides = [size[0] * 4, size[0] * size[1] * 4];
    let address = values.as_ptr() as u64;
    let image = Image { address, size, strides, component: Component::Float, channels: 1 };
    Texture { levels: vec![image], sampler, layered: false, keep: None }
}

fn read(texture: &Texture, geometry: Geometry, coords: [f32; 4]) -> f32 {
    let request =
        FetchRequest { geometry, coords: coords.map(f32::to_bits), float: true, level: 0.0 };
    f32::from_bits(fetch(texture, &request)[0])
}

#[test]
fn addressing() {
    let values = [1.0, 2.0, 3.0, 4.0];
    for (mode, outside) in [
        (Addressing::Clamp, [1.0, 4.0]),
        (Addressing::Wrap, [4.0, 1.0]),
        (Addressing::Mirror, [1.0, 4.0]),
        (Addressing::Border, [9.0, 9.0]),
    ] {
        let t = texture(&values, [4, 1, 1], sampler(mode, false, true));
        assert_eq!(
            [-0.125, 1.125].map(|x| read(&t, Geometry::D1, [x, 0.0, 0.0, 0.0])),
            outside,
            "{mode:?}"
        );
        assert_eq!(read(&t, Geometry::D1, [0.625, 0.0, 0.0, 0.0]), 3.0);
    }
    for odd in [f32::NAN, f32::INFINITY, -1e30] {
        let t = texture(&values, [4, 1, 1], sampler(Addressing::Clamp, true, false));
        assert!((1.0..=4.0).contains(&read(&t, Geometry::D1, [odd, 0.0, 0.0, 0.0])));
    }
}

#[test]
fn weights_have_eight_bits_of_fraction() {
    let values = [0.0, 256.0];
    let t = texture(&values, [2, 1, 1], sampler(Addressing::Clamp, true, false));
    for (x, wanted) in [
        (0.5, 0.0),
        (1.0, 128.0),
        (1.5, 256.0),
        (0.5 + 1.0 / 256.0, 1.0),
        (0.5 + 1.0 / 1024.0, 0.0),
    ] {
        assert_eq!(read(&t, Geometry::D1, [x, 0.0, 0.0, 0.0]), wanted, "at {x}");
    }
    let corners = [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0];
    let t = texture(&corners, [2, 2, 2], sampler(Addressing::Clamp, true, false));
    assert_eq!(read(&t, Geometry::D3, [1.0, 1.0, 1.0, 0.0]), 3.5);
}

#[test]
fn surfaces_have_edges() {
    let values = [0u8; 64];
    let address = values.as_ptr() as u64;
    let image = Image {
        address,
        size: [4, 4, 1],
        strides: [16, 64],
        component: Component::Float,
        channels: 1,
    };
    let at = |x: i32, y: i32, boundary| {
        locate(&image, Geometry::D2, [x as u32, y as u32, 0, 0], 4, boundary)
    };
    assert_eq!(at(4, 1, Boundary::Trap), Access::At(address + 20));
    assert_eq!(at(16, 1, Boundary::Trap), Access::Fault);
    assert_eq!(at(2, 1, Boundary::Clamp), Access::Fault, "in the middle of an element");
    assert_eq!(at(-4, 9, Boundary::Zero), Access::Nothing);
    assert_eq!(at(400, -9, Boundary::Clamp), Access::At(address + 12));
    assert_eq!(at(i32::MIN, i32::MAX, Boundary::Clamp), Access::At(address + 48));
}

#[test]
fn objects_are_found_only_while_they_live() {
    let objects: Objects<u32> = Objects::default();
    let (a, b) = (objects.add(7), objects.add(8));
    assert_eq!((a, b), (1, 2));
    assert_eq!(objects.get(a).as_deref(), Some(&7));
    assert!(objects.remove(a) && !objects.remove(a) && objects.get(a).is_none());
    assert!([0, 3, u64::MAX].iter().all(|value| objects.get(*value).is_none()));
    assert_eq!(objects.add(9), 1);
}
