//! Atomic operations that the processor has no instruction for, on addresses that compiled code has
//! checked.
//!
//! Each loops over a compare-and-exchange of the word; 16-bit values use 16-bit words.

use crate::math::narrow;
use half::{bf16, f16};
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering};

fn update32(ptr: u64, f: impl Fn(u32) -> u32) -> u32 {
    // SAFETY: compiled code passes an address it has checked for four bytes, aligned; all
    // concurrent accesses are atomic or races of the program itself.
    let word = unsafe { AtomicU32::from_ptr(ptr as *mut u32) };
    let mut old = word.load(Ordering::Relaxed);
    while let Err(now) =
        word.compare_exchange_weak(old, f(old), Ordering::SeqCst, Ordering::Relaxed)
    {
        old = now;
    }
    old
}

fn update16(ptr: u64, f: impl Fn(u16) -> u16) -> u16 {
    // SAFETY: as in `update32`, for two bytes.
    let word = unsafe { AtomicU16::from_ptr(ptr as *mut u16) };
    let mut old = word.load(Ordering::Relaxed);
    while let Err(now) =
        word.compare_exchange_weak(old, f(old), Ordering::SeqCst, Ordering::Relaxed)
    {
        old = now;
    }
    old
}

fn update64(ptr: u64, f: impl Fn(u64) -> u64) -> u64 {
    // SAFETY: as in `update32`, for eight bytes.
    let word = unsafe { AtomicU64::from_ptr(ptr as *mut u64) };
    let mut old = word.load(Ordering::Relaxed);
    while let Err(now) =
        word.compare_exchange_weak(old, f(old), Ordering::SeqCst, Ordering::Relaxed)
    {
        old = now;
    }
    old
}

pub(crate) unsafe extern "C" fn add_f32(ptr: u64, value: u32) -> u32 {
    update32(ptr, |old| (f32::from_bits(old) + f32::from_bits(value)).to_bits())
}

pub(crate) unsafe extern "C" fn add_f64(ptr: u64, value: u64) -> u64 {
    update64(ptr, |old| (f64::from_bits(old) + f64::from_bits(value)).to_bits())
}

pub(crate) unsafe extern "C" fn inc_u32(ptr: u64, limit: u32) -> u32 {
    update32(ptr, |old| if old >= limit { 0 } else { old + 1 })
}

pub(crate) unsafe extern "C" fn dec_u32(ptr: u64, limit: u32) -> u32 {
    update32(ptr, |old| if old == 0 || old > limit { limit } else { old - 1 })
}

/// Sum of two half-precision values.
pub(crate) fn sum_f16(a: u16, b: u16) -> u16 {
    narrow::f32_to_f16(f16::from_bits(a).to_f32() + f16::from_bits(b).to_f32())
}

/// Sum of two bfloat16 values.
pub(crate) fn sum_bf16(a: u16, b: u16) -> u16 {
    narrow::f64_to_bf16(f64::from(bf16::from_bits(a)) + f64::from(bf16::from_bits(b)))
}

fn lanes(a: u32, b: u32, f: impl Fn(u16, u16) -> u16) -> u32 {
    u32::from(f(a as u16, b as u16)) | u32::from(f((a >> 16) as u16, (b >> 16) as u16)) << 16
}

pub(crate) unsafe extern "C" fn add_f16(ptr: u64, value: u32) -> u32 {
    update16(ptr, |old| sum_f16(old, value as u16)).into()
}

pub(crate) unsafe extern "C" fn add_bf16(ptr: u64, value: u32) -> u32 {
    update16(ptr, |old| sum_bf16(old, value as u16)).into()
}

pub(crate) unsafe extern "C" fn add_f16x2(ptr: u64, value: u32) -> u32 {
    update32(ptr, |old| lanes(old, value, sum_f16))
}

pub(crate) unsafe extern "C" fn add_bf16x2(ptr: u64, value: u32) -> u32 {
    update32(ptr, |old| lanes(old, value, sum_bf16))
}
