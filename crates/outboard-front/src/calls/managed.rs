//! Managed memory.

use core::ffi::{c_int, c_uint, c_ulonglong, c_void};

use outboard_abi::{
    CUdevice, CUdevice_attribute as A, CUdeviceptr, CUmem_advise, CUmem_advise_enum as Advise,
    CUmem_range_attribute, CUmem_range_attribute_enum as R, CUmemLocation, CUmemLocation_st,
    CUmemLocationType as Location, CUresult, CUstream,
};

use crate::backend::{Backend, Result, UnifiedPtr};
use crate::border::{put, require, slice};
use crate::context;
use crate::device::value;
use crate::managed::{NO_WISHES, NOWHERE, Wishes, check, pieces, wishes};
use crate::memory::{self, Kind};
use crate::process::{Front, Process};
use crate::{state, stream};

/// `CU_MEM_ATTACH_GLOBAL`, `_HOST`, `_SINGLE`.
const ATTACH_GLOBAL: u32 = 1;
const ATTACH_HOST: u32 = 2;
const ATTACH_SINGLE: u32 = 4;
/// `CU_DEVICE_CPU` and `CU_DEVICE_INVALID`.
const CPU: c_int = -1;

/// Changes what is wished for pieces of managed memory.
fn wish(
    front: &'static Front,
    address: UnifiedPtr,
    bytes: u64,
    mut change: impl FnMut(&mut Wishes),
) {
    let mut wishes = front.managed.wishes.lock();
    pieces(address, bytes).for_each(|piece| change(wishes.entry(piece).or_insert(NO_WISHES)));
}

/// The place that a program names: a device ordinal or [`CPU`].
fn place(front: &'static Front, location: &CUmemLocation_st) -> Result<c_int> {
    match location.type_ {
        Location::CU_MEM_LOCATION_TYPE_DEVICE => {
            state::device(front, location.id)?;
            Ok(location.id)
        }
        Location::CU_MEM_LOCATION_TYPE_HOST
        | Location::CU_MEM_LOCATION_TYPE_HOST_NUMA
        | Location::CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT => Ok(CPU),
        _ => Err(CUresult::CUDA_ERROR_INVALID_VALUE),
    }
}

/// The location that an older call's device means.
fn location(device: CUdevice) -> CUmemLocation {
    let type_ = if device == CPU {
        Location::CU_MEM_LOCATION_TYPE_HOST
    } else {
        Location::CU_MEM_LOCATION_TYPE_DEVICE
    };
    CUmemLocation { type_, id: device }
}

pub unsafe fn cuMemAllocManaged<B: Backend>(
    process: &'static Process<B>,
    out: *mut CUdeviceptr,
    bytes: usize,
    flags: c_uint,
) -> Result<()> {
    let here = context::current(process)?;
    require(!out.is_null() && bytes > 0 && matches!(flags, ATTACH_GLOBAL | ATTACH_HOST))?;
    if value(here.device()?, A::CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY) == 0 {
        return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED);
    }
    crate::capture::refuse_unsafe(process)?;
    let address = here.note(process.backend.managed_alloc(here.id, bytes as u64))?;
    memory::insert(process, &here, address, bytes as u64, Kind::Managed);
    // SAFETY: the program's out parameter.
    unsafe { put(out, address.0) }
}

pub unsafe fn cuStreamAttachMemAsync<B: Backend>(
    process: &'static Process<B>,
    stream: CUstream,
    address: CUdeviceptr,
    bytes: usize,
    flags: c_uint,
) -> Result<()> {
    stream::resolve(process, stream)?;
    require(matches!(flags, ATTACH_GLOBAL | ATTACH_HOST | ATTACH_SINGLE))?;
    // The legacy default stream is all streams' and cannot have memory of its own.
    require(flags != ATTACH_SINGLE || (!stream.is_null() && stream as u64 != 1))?;
    let (base, len, allocation) =
        memory::find(process, UnifiedPtr(address)).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    require(matches!(allocation.kind, Kind::Managed | Kind::ManagedGlobal))?;
    // Whole allocations only. The program promises which side accesses the memory when; memory here
    // is kept for all streams alike.
    require(UnifiedPtr(address) == base && (bytes == 0 || bytes as u64 == len))
}

unsafe fn prefetch<B: Backend>(
    process: &'static Process<B>,
    address: UnifiedPtr,
    bytes: u64,
    to: &CUmemLocation,
    stream: CUstream,
) -> Result<()> {
    let (here, stream) = stream::resolve(process, stream)?;
    let allocation = check(process, address, bytes)?;
    let to = place(process, to)?;
    here.note(memory::share(process, here.id, address, &allocation))?;
    here.note(process.backend.managed_prefetch(here.id, address, bytes, to == CPU, stream))?;
    wish(process, address, bytes, |wishes| wishes.prefetched = to);
    Ok(())
}

pub unsafe fn cuMemPrefetchAsync<B: Backend>(
    process: &'static Process<B>,
    address: CUdeviceptr,
    bytes: usize,
    device: CUdevice,
    stream: CUstream,
) -> Result<()> {
    // SAFETY: as this function's.
    unsafe { cuMemPrefetchAsync_v2(process, address, bytes, location(device), 0, stream) }
}

pub unsafe fn cuMemPrefetchAsync_v2<B: Backend>(
    process: &'static Process<B>,
    address: CUdeviceptr,
    bytes: usize,
    location: CUmemLocation,
    flags: c_uint,
    stream: CUstream,
) -> Result<()> {
    require(flags == 0)?;
    // SAFETY: as this function's.
    unsafe { prefetch(process, UnifiedPtr(address), bytes as u64, &location, stream) }
}

/// A batch's ranges, each with the place that it is for.
///
/// # Safety
/// Pointers are null or have as many elements as the counts say.
unsafe fn batch<'a>(
    addresses: *const CUdeviceptr,
    sizes: *const usize,
    count: usize,
    places: *const CUmemLocation,
    indices: *const usize,
    place_count: usize,
) -> Result<Vec<(UnifiedPtr, u64, &'a CUmemLocation)>> {
    require(count > 0 && place_count > 0 && place_count <= count)?;
    // SAFETY: by the contract above.
    let (addresses, sizes, places, indices) = unsafe {
        (
            slice(addresses, count)?,
            slice(sizes, count)?,
            slice(places, place_count)?,
            slice(indices, place_count)?,
        )
    };
    // Each place serves the ranges from its index to the next place's.
    require(
        indices[0] == 0
            && indices.is_sorted_by(|a, b| a < b)
            && indices.iter().all(|index| *index < count),
    )?;
    let ranges = addresses.iter().zip(sizes).enumerate();
    let with_place = |(index, (address, bytes)): (usize, (&u64, &usize))| {
        let place = indices.partition_point(|first| *first <= index) - 1;
        (UnifiedPtr(*address), *bytes as u64, &places[place])
    };
    Ok(ranges.map(with_place).collect())
}

pub unsafe fn cuMemPrefetchBatchAsync<B: Backend>(
    process: &'static Process<B>,
    addresses: *mut CUdeviceptr,
    sizes: *mut usize,
    count: usize,
    places: *mut CUmemLocation,
    indices: *mut usize,
    place_count: usize,
    flags: c_ulonglong,
    stream: CUstream,
) -> Result<()> {
    require(flags == 0)?;
    // SAFETY: the program's arrays.
    let ranges = unsafe { batch(addresses, sizes, count, places, indices, place_count) }?;
    ranges.iter().try_for_each(|(address, bytes, to)| {
        check(process, *address, *bytes).and_then(|_| place(process, to).map(drop))
    })?;
    // SAFETY: as this function's.
    ranges.iter().try_for_each(|(address, bytes, to)| unsafe {
        prefetch(process, *address, *bytes, to, stream)
    })
}

pub unsafe fn cuMemDiscardBatchAsync<B: Backend>(
    process: &'static Process<B>,
    addresses: *mut CUdeviceptr,
    sizes: *mut usize,
    count: usize,
    flags: c_ulonglong,
    stream: CUstream,
) -> Result<()> {
    stream::resolve(process, stream)?;
    require(flags == 0 && count > 0)?;
    // SAFETY: the program's arrays.
    let (addresses, sizes) =
        unsafe { (slice(addresses.cast_const(), count)?, slice(sizes.cast_const(), count)?) };
    // The memory's contents do not matter until it is written again: that it keeps its contents is
    // one way to do that.
    addresses.iter().zip(sizes).try_for_each(|(address, bytes)| {
        check(process, UnifiedPtr(*address), *bytes as u64).map(drop)
    })
}

pub unsafe fn cuMemDiscardAndPrefetchBatchAsync<B: Backend>(
    process: &'static Process<B>,
    addresses: *mut CUdeviceptr,
    sizes: *mut usize,
    count: usize,
    places: *mut CUmemLocation,
    indices: *mut usize,
    place_count: usize,
    flags: c_ulonglong,
    stream: CUstream,
) -> Result<()> {
    // SAFETY: as this function's.
    unsafe {
        cuMemPrefetchBatchAsync(
            process,
            addresses,
            sizes,
            count,
            places,
            indices,
            place_count,
            flags,
            stream,
        )
    }
}

pub unsafe fn cuMemAdvise<B: Backend>(
    process: &'static Process<B>,
    address: CUdeviceptr,
    bytes: usize,
    advice: CUmem_advise,
    device: CUdevice,
) -> Result<()> {
    // SAFETY: as this function's.
    unsafe { cuMemAdvise_v2(process, address, bytes, advice, location(device)) }
}

pub unsafe fn cuMemAdvise_v2<B: Backend>(
    process: &'static Process<B>,
    address: CUdeviceptr,
    bytes: usize,
    advice: CUmem_advise,
    location: CUmemLocation,
) -> Result<()> {
    context::current(process)?;
    let (address, bytes) = (UnifiedPtr(address), bytes as u64);
    check(process, address, bytes)?;
    crate::capture::refuse_unsafe(process)?;
    // Only some of them look at the place.
    match advice {
        Advise::CU_MEM_ADVISE_SET_READ_MOSTLY => {
            wish(process, address, bytes, |wishes| wishes.read_mostly = true)
        }
        Advise::CU_MEM_ADVISE_UNSET_READ_MOSTLY => {
            wish(process, address, bytes, |wishes| wishes.read_mostly = false)
        }
        Advise::CU_MEM_ADVISE_SET_PREFERRED_LOCATION => {
            let at = place(process, &location)?;
            wish(process, address, bytes, |wishes| wishes.preferred = at);
        }
        Advise::CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION => {
            wish(process, address, bytes, |wishes| wishes.preferred = NOWHERE)
        }
        Advise::CU_MEM_ADVISE_SET_ACCESSED_BY => {
            let by = place(process, &location)?;
            wish(process, address, bytes, |wishes| {
                wishes.accessed_by.retain(|other| *other != by);
                wishes.accessed_by.push(by);
            });
        }
        Advise::CU_MEM_ADVISE_UNSET_ACCESSED_BY => {
            let by = place(process, &location)?;
            wish(process, address, bytes, |wishes| wishes.accessed_by.retain(|other| *other != by));
        }
        _ => return Err(CUresult::CUDA_ERROR_INVALID_VALUE),
    }
    Ok(())
}

/// The answer about a range: what all its pieces agree on.
fn common<T: PartialEq>(pieces: &[Wishes], none: T, of: impl Fn(&Wishes) -> T) -> T {
    let first = of(&pieces[0]);
    if pieces.iter().all(|piece| of(piece) == first) { first } else { none }
}

/// # Safety
/// `data` is null or has `bytes` bytes.
unsafe fn answer(
    data: *mut c_void,
    bytes: usize,
    attribute: CUmem_range_attribute,
    pieces: &[Wishes],
) -> Result<()> {
    require(!data.is_null() && bytes >= 4 && bytes.is_multiple_of(4))?;
    let kind = |place: c_int| match place {
        NOWHERE => Location::CU_MEM_LOCATION_TYPE_INVALID.0 as c_int,
        CPU => Location::CU_MEM_LOCATION_TYPE_HOST.0 as c_int,
        _ => Location::CU_MEM_LOCATION_TYPE_DEVICE.0 as c_int,
    };
    let preferred = common(pieces, NOWHERE, |wishes| wishes.preferred);
    let prefetched = common(pieces, NOWHERE, |wishes| wishes.prefetched);
    let word = match attribute {
        R::CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY => {
            c_int::from(pieces.iter().all(|piece| piece.read_mostly))
        }
        R::CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION => preferred,
        R::CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION => prefetched,
        R::CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE => kind(preferred),
        R::CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_TYPE => kind(prefetched),
        R::CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_ID => preferred.max(0),
        R::CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_ID => prefetched.max(0),
        R::CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY => {
            // Those that all pieces name; the rest of the list says that no device does.
            let all = pieces[0]
                .accessed_by
                .iter()
                .filter(|by| pieces.iter().all(|piece| piece.accessed_by.contains(by)));
            let list = all.copied().chain(std::iter::repeat(NOWHERE));
            for (index, by) in list.take(bytes / 4).enumerate() {
                // SAFETY: by the contract above.
                unsafe { data.cast::<c_int>().add(index).write(by) };
            }
            return Ok(());
        }
        _ => return Err(CUresult::CUDA_ERROR_INVALID_VALUE),
    };
    require(bytes == 4)?;
    // SAFETY: by the contract above.
    unsafe { put(data.cast::<c_int>(), word) }
}

pub unsafe fn cuMemRangeGetAttribute<B: Backend>(
    process: &'static Process<B>,
    data: *mut c_void,
    data_size: usize,
    attribute: CUmem_range_attribute,
    address: CUdeviceptr,
    bytes: usize,
) -> Result<()> {
    context::current(process)?;
    // SAFETY: the program's out parameter.
    unsafe {
        answer(data, data_size, attribute, &wishes(process, UnifiedPtr(address), bytes as u64)?)
    }
}

pub unsafe fn cuMemRangeGetAttributes<B: Backend>(
    process: &'static Process<B>,
    data: *mut *mut c_void,
    sizes: *mut usize,
    attributes: *mut CUmem_range_attribute,
    count: usize,
    address: CUdeviceptr,
    bytes: usize,
) -> Result<()> {
    context::current(process)?;
    require(count > 0)?;
    let pieces = wishes(process, UnifiedPtr(address), bytes as u64)?;
    // SAFETY: the program's arrays.
    let (data, sizes, attributes) = unsafe {
        (
            slice(data.cast_const(), count)?,
            slice(sizes.cast_const(), count)?,
            slice(attributes.cast_const(), count)?,
        )
    };
    for ((data, size), attribute) in data.iter().zip(sizes).zip(attributes) {
        // SAFETY: the program's out parameters.
        unsafe { answer(*data, *size, *attribute, &pieces) }?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::managed::{PIECE, forget};
    use crate::process::front;

    #[test]
    fn wishes_are_kept_by_piece() {
        let base = UnifiedPtr(0x7000_0000);
        wish(front(), base.offset(100), 5000, |wishes| wishes.preferred = 0);
        wish(front(), base.offset(PIECE), 1, |wishes| wishes.read_mostly = true);
        let pieces: Vec<_> = (0..3)
            .map(|i| front().managed.wishes.lock().get(&base.offset(i * PIECE)).cloned())
            .collect();
        assert_eq!(pieces[0].as_ref().map(|w| (w.preferred, w.read_mostly)), Some((0, false)));
        assert_eq!(pieces[1].as_ref().map(|w| (w.preferred, w.read_mostly)), Some((0, true)));
        assert_eq!(pieces[2], None);
        let known: Vec<Wishes> = pieces.into_iter().flatten().collect();
        assert_eq!(common(&known, NOWHERE, |w| w.preferred), 0);
        assert!(!known.iter().all(|w| w.read_mostly));
        forget(front(), base, 2 * PIECE);
        assert!(front().managed.wishes.lock().range(base.range(3 * PIECE)).next().is_none());
    }

    #[test]
    fn places_of_a_batch_serve_the_ranges_from_their_index_on() {
        let (addresses, sizes) = ([1u64, 2, 3, 4], [10usize, 20, 30, 40]);
        let places = [location(CPU), location(0)];
        let places_of = |indices: &[usize]| {
            // SAFETY: arrays of those lengths.
            unsafe {
                batch(
                    addresses.as_ptr(),
                    sizes.as_ptr(),
                    4,
                    places.as_ptr(),
                    indices.as_ptr(),
                    indices.len(),
                )
            }
            .map(|ranges| ranges.iter().map(|(_, _, place)| place.id).collect::<Vec<_>>())
        };
        assert_eq!(places_of(&[0, 2]), Ok(vec![CPU, CPU, 0, 0]));
        assert_eq!(places_of(&[0]), Ok(vec![CPU; 4]));
        for wrong in [&[1][..], &[0, 0], &[0, 4]] {
            assert_eq!(places_of(wrong), Err(CUresult::CUDA_ERROR_INVALID_VALUE));
        }
    }
}
