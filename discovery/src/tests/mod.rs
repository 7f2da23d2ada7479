//! Tests of the pure core as a whole: objects in, pools out.

mod candidates;
mod cluster;
mod examples;
mod leaving;
mod reactions;
mod served_names;
