//! A simulated operator with kubelet.

pub mod loopback;
