//! The `.approx` functions, within the errors that the PTX manual documents. They are computed in
//! double precision and rounded, so they are more exact than hardware, and the same on every
//! machine.

macro_rules! unary {
    ($($(#[$doc:meta])* $name:ident => |$x:ident| $body:expr;)*) => {$(
        $(#[$doc])*
        pub(crate) extern "C" fn $name($x: f32) -> f32 {
            $body
        }
    )*};
}

unary! {
    sin => |x| f64::from(x).sin() as f32;
    cos => |x| f64::from(x).cos() as f32;
    tanh => |x| f64::from(x).tanh() as f32;
    /// Base-2 exponential.
    ex2 => |x| f64::from(x).exp2() as f32;
    /// Base-2 logarithm.
    lg2 => |x| f64::from(x).log2() as f32;
}

/// `rsqrt.approx.f64`
pub(crate) extern "C" fn rsqrt_f64(x: f64) -> f64 {
    1.0 / x.sqrt()
}

#[cfg(test)]
mod tests {
    #[test]
    fn special_values() {
        assert_eq!(super::ex2(f32::NEG_INFINITY), 0.0);
        assert_eq!(super::ex2(10.0), 1024.0);
        assert_eq!(super::lg2(0.0), f32::NEG_INFINITY);
        assert!(super::lg2(-1.0).is_nan());
        assert_eq!(super::rsqrt_f64(-0.0), f64::NEG_INFINITY);
        assert_eq!(super::tanh(f32::INFINITY), 1.0);
    }
}
