//! Reed-Solomon and P + Q: every loss that they promise to repair, and the limits of both.

use proptest::prelude::*;
use services::{ErasureError, Kernel, LostBlocks, Raid, RaidError, ReedSolomon, Refused, Service};

use crate::packets::serve;
use crate::tools::noise;

/// Data and parity of a code, one behind the other.
fn stripe(service: &mut dyn Service, data: Vec<u8>) -> Vec<u8> {
    let parity = serve(service, &data).expect("encoded");
    [data, parity].concat()
}

/// The stripe with noise in the place of the lost parts.
fn damaged(stripe: &[u8], length: usize, lost: &[usize]) -> Vec<u8> {
    let mut damaged = stripe.to_vec();
    for &part in lost {
        damaged[part * length..][..length].copy_from_slice(&noise(length, 99));
    }
    damaged
}

/// Every set of at most `most` of `0..count`.
fn subsets(count: usize, most: u32) -> impl Iterator<Item = Vec<usize>> {
    (0u32..1 << count)
        .filter(move |set| set.count_ones() <= most)
        .map(move |set| (0..count).filter(|part| set >> part & 1 == 1).collect())
}

#[test]
fn every_loss_of_a_small_code_is_repaired() {
    const LENGTH: usize = 37;
    for kernel in [Kernel::portable(), Kernel::detect()] {
        for (data, parity) in [(1, 1), (3, 2), (5, 3), (4, 4), (1, 5)] {
            let mut code = ReedSolomon::with_kernel(data, parity, kernel).expect("a shape");
            let whole = stripe(&mut code, noise(data * LENGTH, 1));
            for lost in subsets(data + parity, parity as u32) {
                let mut repaired = damaged(&whole, LENGTH, &lost);
                code.reconstruct(&mut repaired, &lost).expect("repaired");
                assert!(repaired == whole, "{data} + {parity}, lost {lost:?}");

                let mut repair = code.repair(&lost).expect("few enough");
                let part = |&i: &usize| &whole[i * LENGTH..][..LENGTH];
                let survivors: Vec<&[u8]> = repair.survivors().iter().map(part).collect();
                let expected: Vec<&[u8]> = repair.lost().iter().map(part).collect();
                let reply = serve(&mut repair, &survivors.concat()).expect("repaired");
                assert!(reply == expected.concat(), "{data} + {parity}, lost {lost:?}");
            }
        }
    }
}

proptest! {
    #[test]
    fn any_loss_of_any_code_is_repaired(
        (data, parity) in (1usize..40, 1usize..12),
        length in 1usize..200,
        seed in any::<u64>(),
        choice in any::<prop::sample::Selector>(),
    ) {
        let mut code = ReedSolomon::new(data, parity).expect("a shape");
        let whole = stripe(&mut code, noise(data * length, seed));
        let mut lost: Vec<usize> = Vec::new();
        while lost.len() < parity {
            let rest: Vec<usize> = (0..data + parity).filter(|part| !lost.contains(part)).collect();
            lost.push(*choice.select(&rest));
        }
        lost.sort_unstable();
        let mut repaired = damaged(&whole, length, &lost);
        code.reconstruct(&mut repaired, &lost).expect("repaired");
        prop_assert!(repaired == whole);
    }

    #[test]
    fn any_two_lost_blocks_come_back(
        disks in 1usize..=255,
        length in 1usize..70,
        seed in any::<u64>(),
        (a, b) in any::<(usize, usize)>(),
    ) {
        let mut raid = Raid::new(disks).expect("a number");
        let whole = stripe(&mut raid, noise(disks * length, seed));
        let a = a % (disks + 2);
        let b = (a + 1 + b % (disks + 1)) % (disks + 2);
        let mut repaired = damaged(&whole, length, &[a, b]);
        raid.recover(&mut repaired, LostBlocks::Two(a, b)).expect("recovered");
        prop_assert!(repaired == whole, "{} disks, lost {} and {}", disks, a, b);
    }
}

#[test]
fn the_largest_code_works() {
    let mut code = ReedSolomon::new(200, 56).expect("256 together");
    let whole = stripe(&mut code, noise(200 * 33, 1));
    let lost: Vec<usize> = (0..256).step_by(5).collect();
    let mut repaired = damaged(&whole, 33, &lost);
    code.reconstruct(&mut repaired, &lost).expect("repaired");
    assert!(repaired == whole);
}

#[test]
fn what_a_code_cannot_do_is_said() {
    for (data, parity) in [(0, 1), (1, 0), (200, 57), (usize::MAX, 2)] {
        let error = ReedSolomon::new(data, parity).expect_err("out of range");
        assert_eq!(error, ErasureError::Shape { data, parity });
    }
    let mut code = ReedSolomon::new(3, 2).expect("a shape");
    let error = |lost: &[usize]| code.repair(lost).expect_err("not repairable");
    assert_eq!(error(&[0, 1, 2]), ErasureError::TooManyLost { lost: 3, parity: 2 });
    assert_eq!(error(&[5]), ErasureError::Fragment { fragment: 5, last: 4 });
    assert_eq!(error(&[2, 2]), ErasureError::Fragment { fragment: 2, last: 4 });
    assert_eq!(error(&[2, 1]), ErasureError::Fragment { fragment: 1, last: 4 });
    let stripe = code.reconstruct(&mut [0; 14], &[1]).expect_err("no whole fragments");
    assert_eq!(stripe, ErasureError::Stripe { found: 14, fragments: 5 });
    let stripe = code.reconstruct(&mut [], &[1]).expect_err("nothing");
    assert_eq!(stripe, ErasureError::Stripe { found: 0, fragments: 5 });
    for found in [0, 10] {
        assert_eq!(serve(&mut code, &vec![0; found]), Err(Refused::Length { found, multiple: 3 }));
    }
}

#[test]
fn every_two_lost_blocks_come_back_with_both_kernels() {
    const LENGTH: usize = 300;
    for kernel in [Kernel::portable(), Kernel::detect()] {
        for disks in [1, 2, 8] {
            let mut raid = Raid::with_kernel(disks, kernel).expect("a number");
            let whole = stripe(&mut raid, noise(disks * LENGTH, 2));
            for a in 0..disks + 2 {
                let mut repaired = damaged(&whole, LENGTH, &[a]);
                raid.recover(&mut repaired, LostBlocks::One(a)).expect("recovered");
                assert!(repaired == whole, "{disks} disks, lost {a}");
                for b in (0..disks + 2).filter(|&b| b != a) {
                    let mut repaired = damaged(&whole, LENGTH, &[a, b]);
                    raid.recover(&mut repaired, LostBlocks::Two(a, b)).expect("recovered");
                    assert!(repaired == whole, "{disks} disks, lost {a} and {b}");
                }
            }
        }
    }
}

#[test]
fn what_raid_cannot_do_is_said() {
    for found in [0, 256] {
        assert_eq!(Raid::new(found).expect_err("out of range"), RaidError::Disks { found });
    }
    let mut raid = Raid::new(3).expect("a number");
    let recover = |length: usize, lost| raid.recover(&mut vec![0; length], lost).expect_err("no");
    assert_eq!(recover(0, LostBlocks::One(0)), RaidError::Stripe { found: 0, blocks: 5 });
    assert_eq!(recover(9, LostBlocks::One(0)), RaidError::Stripe { found: 9, blocks: 5 });
    assert_eq!(recover(10, LostBlocks::One(5)), RaidError::Block { block: 5, last: 4 });
    assert_eq!(recover(10, LostBlocks::Two(1, 1)), RaidError::Block { block: 1, last: 4 });
    assert_eq!(recover(10, LostBlocks::Two(9, 1)), RaidError::Block { block: 9, last: 4 });
    for found in [0, 10] {
        assert_eq!(serve(&mut raid, &vec![0; found]), Err(Refused::Length { found, multiple: 3 }));
    }
}
