//! Quantiles of a histogram, as Prometheus' `histogram_quantile` estimates them.

use prometheus::Histogram;
use prometheus::core::Metric;

/// How many observations there were, and the quantiles `shares` of them in microseconds (0 without any).
pub(super) fn quantiles<const N: usize>(histogram: &Histogram, shares: [f64; N]) -> (u64, [f64; N]) {
    let metric = histogram.metric();
    let histogram = metric.get_histogram();
    let buckets: Vec<(f64, u64)> = histogram
        .get_bucket()
        .iter()
        .map(|bucket| (bucket.upper_bound(), bucket.cumulative_count()))
        .collect();
    let count = histogram.get_sample_count();
    (count, shares.map(|share| quantile(&buckets, count, share) * 1e6))
}

/// Linear inside the bucket; what lies above the last bound is taken for the last bound.
fn quantile(buckets: &[(f64, u64)], count: u64, share: f64) -> f64 {
    if count == 0 {
        return 0.0;
    }
    let rank = share * count as f64;
    let (mut low, mut before) = (0.0, 0_u64);
    for &(high, up_to) in buckets.iter().filter(|(bound, _)| bound.is_finite()) {
        if up_to as f64 >= rank && up_to > before {
            return low + (high - low) * (rank - before as f64) / (up_to - before) as f64;
        }
        (low, before) = (high, up_to);
    }
    low
}

#[cfg(test)]
mod tests {
    use super::quantile;

    #[test]
    fn a_quantile_lies_in_its_bucket() {
        let buckets = [(1.0, 10), (2.0, 20), (4.0, 20), (f64::INFINITY, 25)];
        assert_eq!(quantile(&buckets, 20, 0.5), 1.0);
        assert_eq!(quantile(&buckets, 20, 0.75), 1.5);
        assert_eq!(quantile(&buckets, 20, 1.0), 2.0);
        assert_eq!(quantile(&buckets, 25, 0.99), 4.0, "above the last bound");
        assert_eq!(quantile(&[], 0, 0.5), 0.0);
    }
}
