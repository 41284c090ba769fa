// zoo/math.cuh: exp, log, log1p, sin, cos and atan2 of our own, so a CPU and a GPU give the same bits.
//
// Only + - * /, sqrt, compares and integer work on the bits are used, each of which IEEE 754 fixes
// to the last bit. That holds as long as no compiler fuses a * b + c: build with --fmad=false (NVRTC,
// nvcc) or -ffp-contract=off (g++), and never with -ffast-math. Nothing here branches: special values
// are picked by selects, so with -fno-trapping-math, which changes no value, g++ can vectorise a
// loop over any of it. Every NaN answer has the same bits (0x7fc00000, or 0x7ff8 and zeros).
//
// An error is in ulp of the exact answer, the worst that tests/kernels/test_math.py and a sweep of
// all floats found, rounded up. Each polynomial is a minimax one, made with Remez's algorithm at 60
// digits to be best for the function's relative error over the interval named, then rounded.
//
// In a ZOO_REFERENCE build `real` is double and real_exp(x) and so on are the C library's on the
// host, as are NumPy's sin, cos and logaddexp. (Its exp and log1p are its own on a processor with
// AVX-512, and differ in the last bit.) In any other build `real` is float and they are ours.
#pragma once
#include "zoo/core.cuh"

#ifndef ZOO_REFERENCE
  #define ZOO_REFERENCE 0
#endif

#if ZOO_GPU
  ZOO_FN u32 zoo_bits(float x) { return __float_as_uint(x); }
  ZOO_FN u64 zoo_bits(double x) { return (u64)__double_as_longlong(x); }
  ZOO_FN float zoo_from_bits(u32 b) { return __uint_as_float(b); }
  ZOO_FN double zoo_from_bits(u64 b) { return __longlong_as_double((long long)b); }
  ZOO_FN float zoo_sqrt(float x) { return __fsqrt_rn(x); }
  ZOO_FN double zoo_sqrt(double x) { return __dsqrt_rn(x); }
#else
  ZOO_FN u32 zoo_bits(float x) { u32 b; memcpy(&b, &x, sizeof b); return b; }
  ZOO_FN u64 zoo_bits(double x) { u64 b; memcpy(&b, &x, sizeof b); return b; }
  ZOO_FN float zoo_from_bits(u32 b) { float x; memcpy(&x, &b, sizeof x); return x; }
  ZOO_FN double zoo_from_bits(u64 b) { double x; memcpy(&x, &b, sizeof x); return x; }
  ZOO_FN float zoo_sqrt(float x) { return sqrtf(x); }
  ZOO_FN double zoo_sqrt(double x) { return sqrt(x); }
#endif

#define ZOO_NAN_F zoo_from_bits(0x7fc00000u)
#define ZOO_NAN_D zoo_from_bits(0x7ff8000000000000ull)

ZOO_FN int zoo_abs(int x) { return x < 0 ? -x : x; }
ZOO_FN float zoo_abs(float x) { return fabsf(x); }
ZOO_FN double zoo_abs(double x) { return fabs(x); }
ZOO_FN float zoo_floor(float x) { return floorf(x); }
ZOO_FN double zoo_floor(double x) { return floor(x); }
template <class T> ZOO_FN T zoo_min(T a, T b) { return a < b ? a : b; }  // a NaN on either side
template <class T> ZOO_FN T zoo_max(T a, T b) { return a > b ? a : b; }  // gives b

// c0 + c1 x + c2 x^2 + ..., lowest coefficient first.
template <class T> ZOO_FN T zoo_poly(T, T c) { return c; }
template <class T, class... Rest> ZOO_FN T zoo_poly(T x, T c, Rest... rest) {
  return c + x * zoo_poly(x, rest...);
}

// exp: x = k ln2 + r, exp(r) = 1 + r + r^2 P(r). ln2 is split so that k times its first part is
// exact; what 1 + hi rounds away is put back. 2^k is applied as two factors, so that a large k
// overflows and a small one underflows gradually. <= 0.8 ulp; P degree 4 on |r| <= ln2 / 2.
ZOO_FN float zoo_exp(float x) {
  float c = x > 89.0f ? 89.0f : x;
  c = c < -105.0f ? -105.0f : c;
  float shifted = c * 1.44269504f + 12582912.0f;  // 1.5 * 2^23: the sum rounds to an integer
  float kf = shifted - 12582912.0f;
  int k = (int)(zoo_bits(shifted) - 0x4b400000u);
  float hi = c - kf * 0.693145752f, lo = kf * 1.42860677e-6f;
  float r = hi - lo;
  float p = r * r * zoo_poly(r, 0.49999994f, 0.166665211f, 0.041668389f, 0.00836874545f,
                             0.00138145406f);
  float y = 1.0f + hi;
  y = y + ((hi - (y - 1.0f)) + (p - lo));
  int half = k >> 1;
  y = y * zoo_from_bits((u32)(half + 127) << 23) * zoo_from_bits((u32)(k - half + 127) << 23);
  return x == x ? y : ZOO_NAN_F;
}

// As above. <= 0.9 ulp; P degree 10 on |r| <= ln2 / 2.
ZOO_FN double zoo_exp(double x) {
  double c = x > 710.0 ? 710.0 : x;
  c = c < -746.0 ? -746.0 : c;
  double shifted = c * 1.4426950408889634 + 6755399441055744.0;  // 1.5 * 2^52
  double kf = shifted - 6755399441055744.0;
  int k = (int)(zoo_bits(shifted) - 0x4338000000000000ull);
  double hi = c - kf * 0.6931471805601177, lo = kf * -1.7239444525614835e-13;
  double r = hi - lo;
  double p = r * r * zoo_poly(r, 0.5, 0.16666666666666682, 0.041666666666666095,
                              0.0083333333333169817, 0.0013888888889116357,
                              0.00019841269896515732, 2.4801586925728432e-5,
                              2.7557234727262839e-6, 2.7557582272155647e-7,
                              2.5112084686420843e-8, 2.0826585881591257e-9);
  double y = 1.0 + hi;
  y = y + ((hi - (y - 1.0)) + (p - lo));
  int half = k >> 1;
  y = y * zoo_from_bits((u64)(half + 1023) << 52) * zoo_from_bits((u64)(k - half + 1023) << 52);
  return x == x ? y : ZOO_NAN_D;
}

// e ln2 + log(1 + f) + small, |f| < 0.4143 (m = 1 + f is within [sqrt(1/2), sqrt(2)]):
// log(1 + f) = f - f^2 (1/2 - f P(f)), P degree 7 on that interval. What e ln2 + f rounds away is
// put back: |e ln2| > |f| unless e is 0.
ZOO_FN float zoo_log_sum(float e, float f, float small) {
  float t = f * f * (0.5f - f * zoo_poly(f, 0.333333313f, -0.250008196f, 0.200012267f,
                                         -0.166233569f, 0.142017573f, -0.131601825f,
                                         0.12761578f, -0.0763449818f));
  float a = e * 0.693145752f;
  float y = a + f;
  return y + ((f - (y - a)) - (t - (e * 1.42860677e-6f + small)));
}

// As above, with s = f / (2 + f) and h = f^2 / 2: log(1 + f) = 2 atanh(s) = f - h + s (h + s^2
// P(s^2)), P degree 6. What the subtraction of h rounds away is put back as well.
ZOO_FN double zoo_log_sum(double e, double f, double small) {
  double s = f / (2.0 + f), z = s * s, h = 0.5 * f * f;
  double t = s * (h + z * zoo_poly(z, 0.6666666666666734, 0.39999999999414548,
                                   0.28571428742432275, 0.22222198567353066,
                                   0.1818356468449302, 0.15314040130591644,
                                   0.147960653553566));
  double a = e * 0.6931471805601177;
  double sum = a + f, y = sum - h;
  double lost = (f - (sum - a)) + ((sum - y) - h);
  return y + (lost + (t + (e * -1.7239444525614835e-13 + small)));
}

// y where x is positive and finite, else what log(x) is there.
ZOO_FN float zoo_log_select(float x, float y) {
  u32 special = x == 0.0f ? 0xff800000u : x > 0.0f ? 0x7f800000u : 0x7fc00000u;
  return zoo_bits(x) - 1u < 0x7f7fffffu ? y : zoo_from_bits(special);
}
ZOO_FN double zoo_log_select(double x, double y) {
  u64 special = x == 0.0 ? 0xfffull << 52 : x > 0.0 ? 0x7ffull << 52 : 0x7ff8ull << 48;
  return zoo_bits(x) - 1u < 0x7fefffffffffffffull ? y : zoo_from_bits(special);
}

// log: x = 2^e m, m within [sqrt(1/2), sqrt(2)]; a subnormal x is first scaled up. <= 1.0 ulp.
ZOO_FN float zoo_log(float x) {
  float scale = x < 1.17549435e-38f ? 16777216.0f : 1.0f;
  u32 bits = zoo_bits(x * scale);
  int e = (int)(bits - 0x3f3504f3u) >> 23;  // 0x3f3504f3: sqrt(1/2)
  float f = zoo_from_bits(bits - ((u32)e << 23)) - 1.0f;
  e -= (int)(zoo_bits(scale) >> 23) - 127;
  return zoo_log_select(x, zoo_log_sum((float)e, f, 0.0f));
}

// As above. <= 0.8 ulp.
ZOO_FN double zoo_log(double x) {
  double scale = x < 2.2250738585072014e-308 ? 18014398509481984.0 : 1.0;
  u64 bits = zoo_bits(x * scale);
  int e = (int)((long long)(bits - 0x3fe6a09e667f3bcdull) >> 52);  // 0x3fe6a09e667f3bcd: sqrt(1/2)
  double f = zoo_from_bits(bits - ((u64)e << 52)) - 1.0;
  e -= (int)(zoo_bits(scale) >> 52) - 1023;
  return zoo_log_select(x, zoo_log_sum((double)e, f, 0.0));
}

// log1p: u = 1 + x = 2^e m as in log, and lost, what u rounded away, goes into f as far as f can
// hold it; the rest times 1 / m ~ 1 - f is a last small term. With e 0, f is x itself. <= 1.0 ulp.
ZOO_FN float zoo_log1p(float x) {
  float u = 1.0f + x;
  float lost = x - (u - 1.0f);
  u32 bits = zoo_bits(u);
  int e = (int)(bits - 0x3f3504f3u) >> 23;
  lost = lost * zoo_from_bits((u32)(127 - (e > 60 ? 60 : e)) << 23);  // past 60 it does not count
  float g = zoo_from_bits(bits - ((u32)e << 23)) - 1.0f;
  float f = g + lost;
  float y = zoo_log_sum((float)e, f, (lost - (f - g)) * (1.0f - f));
  return zoo_log_select(u, u == 1.0f ? x : y);  // x itself keeps the sign of -0
}

// As above. <= 0.8 ulp.
ZOO_FN double zoo_log1p(double x) {
  double u = 1.0 + x;
  double lost = x - (u - 1.0);
  u64 bits = zoo_bits(u);
  int e = (int)((long long)(bits - 0x3fe6a09e667f3bcdull) >> 52);
  lost = lost * zoo_from_bits((u64)(1023 - (e > 120 ? 120 : e)) << 52);
  double g = zoo_from_bits(bits - ((u64)e << 52)) - 1.0;
  double f = g + lost;
  double y = zoo_log_sum((double)e, f, (lost - (f - g)) * (1.0 - f));
  return zoo_log_select(u, u == 1.0 ? x : y);
}

// sin (quarter 0) and cos (quarter 1): x = k pi/2 + (r - lo), with pi/2 in four parts of which k
// times each of the first three is exact; then sin(r) = r + r^3 S(r^2), S degree 2, and
// cos(r) = 1 - r^2/2 + r^4 C(r^2), C degree 2, on |r| <= pi/4, and lo to first order. <= 0.9 ulp for
// |x| <= 1e4. Farther out the error grows to about ulp(x), and past 2^22 a finite x counts as 0: the
// answer is always within [-1, 1]. sin(x) and cos(x) of one x share all but the last few selects.
ZOO_FN float zoo_trig(float x, u32 quarter) {
  float a = zoo_abs(x) <= 4194304.0f ? x : 0.0f;
  float shifted = a * 0.636619772f + 12582912.0f;
  float k = shifted - 12582912.0f;
  u32 turn = zoo_bits(shifted) + quarter;
  float d2 = a - k * 1.5703125f - k * 0.000483751297f;
  float t3 = k * 7.54953362e-8f, d3 = d2 - t3;
  float rest = k * 2.56334407e-12f - ((d2 - d3) - t3);
  float r = d3 - rest, lo = rest - (d3 - r);
  float z = r * r, h = 0.5f * z, w = 1.0f - h;
  float s = r - (lo * w - r * z * zoo_poly(z, -0.166666552f, 0.00833217427f, -0.000195166853f));
  float c = z * z * zoo_poly(z, 0.0416666456f, -0.0013887363f, 2.44378316e-5f) + r * lo;
  c = w + (((1.0f - w) - h) + c);
  float y = turn & 1u ? c : s;
  y = turn & 2u ? -y : y;
  return x - x == 0.0f ? y : ZOO_NAN_F;
}

// As above with pi/2 in three parts, S and C degree 5. <= 0.9 ulp for |x| <= 1e5; past 2^50 a finite
// x counts as 0.
ZOO_FN double zoo_trig(double x, u32 quarter) {
  double a = zoo_abs(x) <= 1125899906842624.0 ? x : 0.0;
  double shifted = a * 0.63661977236758134 + 6755399441055744.0;
  double k = shifted - 6755399441055744.0;
  u32 turn = (u32)zoo_bits(shifted) + quarter;
  double d1 = a - k * 1.5707963267923333;
  double t2 = k * 2.5633441515839558e-12, d2 = d1 - t2;
  double rest = k * 1.0562999066987428e-23 - ((d1 - d2) - t2);
  double r = d2 - rest, lo = rest - (d2 - r);
  double z = r * r, h = 0.5 * z, w = 1.0 - h;
  double s = zoo_poly(z, -0.16666666666666632, 0.0083333333333224392, -0.00019841269829826087,
                      2.7557313697925597e-6, -2.5050759024110243e-8, 1.5896847189252005e-10);
  double c = zoo_poly(z, 0.041666666666666602, -0.0013888888888874257, 2.4801587289556046e-5,
                      -2.7557314371738126e-7, 2.0875725713642282e-9, -1.1359766209352892e-11);
  s = r - (lo * w - r * z * s);
  c = w + (((1.0 - w) - h) + (z * z * c + r * lo));
  double y = turn & 1u ? c : s;
  y = turn & 2u ? -y : y;
  return x - x == 0.0 ? y : ZOO_NAN_D;
}

template <class T> ZOO_FN T zoo_sin(T x) { return zoo_trig(x, 0u); }
template <class T> ZOO_FN T zoo_cos(T x) { return zoo_trig(x, 1u); }

// atan2: the angle of the point (x, y). Of |x| and |y|, a is the larger and b the smaller; past
// b / a = 1/2, atan(b / a) = pi/4 + atan((b - a) / (b + a)). So |t| <= 1/2 in atan(t) = t + t^3
// P(t^2), P degree 4. By its octant the angle is then m pi/4 plus or minus that, with pi/4 in two
// parts of which m times the first is exact. Infinities count as equal, beside which all else is 0;
// signs of zeros are kept as in C. <= 1.7 ulp.
ZOO_FN float zoo_atan2(float y, float x) {
  float ax = zoo_abs(x), ay = zoo_abs(y);
  bool steep = ay > ax, left = zoo_bits(x) >> 31;
  float a = steep ? ay : ax, b = steep ? ax : ay;
  float scale = a > 1e38f ? 0.25f : 1.0f;  // so that b + a does not overflow
  b = b > 3.40282347e38f ? 1.0f : a > 3.40282347e38f ? 0.0f : b * scale;
  a = a > 3.40282347e38f || a == 0.0f ? 1.0f : a * scale;
  bool far = b + b > a;
  float t = (far ? b - a : b) / (far ? b + a : a);
  float m = far ? 1.0f : 0.0f, sign = 1.0f;
  m = steep ? 2.0f - m : m, sign = steep ? -sign : sign;
  m = left ? 4.0f - m : m, sign = left ? -sign : sign;
  t = sign * t;
  float z = t * t, base = m * 0.785398006f;
  float tail = t * z * zoo_poly(z, -0.333332330f, 0.199942261f, -0.141750112f, 0.101600163f,
                                -0.0513259917f);
  float r = base + t;
  r = r + ((t - (r - base)) + (tail + m * 1.56958237e-7f));
  r = zoo_from_bits((zoo_bits(r) & 0x7fffffffu) | (zoo_bits(y) & 0x80000000u));
  return x == x && y == y ? r : ZOO_NAN_F;
}

// As above, P degree 11. <= 1.7 ulp.
ZOO_FN double zoo_atan2(double y, double x) {
  double ax = zoo_abs(x), ay = zoo_abs(y);
  bool steep = ay > ax, left = zoo_bits(x) >> 63;
  double a = steep ? ay : ax, b = steep ? ax : ay;
  double scale = a > 1e308 ? 0.25 : 1.0;
  b = b > 1.7976931348623157e308 ? 1.0 : a > 1.7976931348623157e308 ? 0.0 : b * scale;
  a = a > 1.7976931348623157e308 || a == 0.0 ? 1.0 : a * scale;
  bool far = b + b > a;
  double t = (far ? b - a : b) / (far ? b + a : a);
  double m = far ? 1.0 : 0.0, sign = 1.0;
  m = steep ? 2.0 - m : m, sign = steep ? -sign : sign;
  m = left ? 4.0 - m : m, sign = left ? -sign : sign;
  t = sign * t;
  double z = t * t, base = m * 0.78539816339744828;
  double tail = t * z * zoo_poly(z, -0.33333333333332982, 0.19999999999903162,
                                 -0.14285714276390069, 0.11111110659798829,
                                 -0.090908962483888828, 0.076920739642726318,
                                 -0.066638110983554363, 0.058583019062846214,
                                 -0.051220180743821911, 0.041865363593392359,
                                 -0.027435430569637542, 0.010117163951225677);
  double r = base + t;
  r = r + ((t - (r - base)) + (tail + m * 3.061616997868383e-17));
  r = zoo_from_bits((zoo_bits(r) & ~(1ull << 63)) | (zoo_bits(y) & 1ull << 63));
  return x == x && y == y ? r : ZOO_NAN_D;
}

// log(exp(0) + exp(x)) = x + log1p(exp(-x)) where x > 0, else log1p(exp(x)).
template <class T> ZOO_FN T zoo_logaddexp0(T x) {
  T positive = x > T(0) ? x : T(0);
  return positive + zoo_log1p(zoo_exp(-zoo_abs(x)));
}

// x rounded to float32. Through memory, since g++ 12 forgets to round where it does two at once.
ZOO_FN float zoo_single(float x) { return x; }
ZOO_FN double zoo_single(double x) {
  float single = (float)x;
#if !ZOO_GPU
  __asm__("" : "+m"(single));
#endif
  return single;
}

// x modulo y > 0, with y's sign.
ZOO_FN float zoo_mod(float x, float y) { return x - y * zoo_floor(x / y); }
// As above, exactly: fmod rounds nothing, on a GPU either. As Python's x % y.
ZOO_FN double zoo_mod(double x, double y) {
  double rest = fmod(x, y);
  return rest < 0.0 ? rest + y : rest;
}

template <class T> ZOO_FN T zoo_square(T x) { return x * x; }

#if ZOO_REFERENCE
  #if ZOO_GPU
    #define ZOO_REF(ours, libm) ours
  #else
    #define ZOO_REF(ours, libm) libm
    // Of one number, NumPy's x ** 2 is the C library's pow(x, 2), now and then 1 ulp off x * x, into
    // which a compiler that sees the 2 turns it.
    static const volatile float zoo_two = 2;
    ZOO_FN float zoo_pow2(float x) { return powf(x, zoo_two); }
    ZOO_FN double zoo_pow2(double x) { return pow(x, zoo_two); }
  #endif
  typedef double real;
  ZOO_FN double ref_exp(double x) { return ZOO_REF(zoo_exp, exp)(x); }
  ZOO_FN double ref_log(double x) { return ZOO_REF(zoo_log, log)(x); }
  ZOO_FN double ref_log1p(double x) { return ZOO_REF(zoo_log1p, log1p)(x); }
  ZOO_FN double ref_sin(double x) { return ZOO_REF(zoo_sin, sin)(x); }
  ZOO_FN double ref_cos(double x) { return ZOO_REF(zoo_cos, cos)(x); }
  ZOO_FN double ref_atan2(double y, double x) { return ZOO_REF(zoo_atan2, atan2)(y, x); }
  ZOO_FN double ref_square(double x) { return ZOO_REF(zoo_square, zoo_pow2)(x); }
  ZOO_FN float ref_square(float x) { return ZOO_REF(zoo_square, zoo_pow2)(x); }
  #define ZOO_REAL(name) ref_##name
#else
  typedef float real;
  #define ZOO_REAL(name) zoo_##name
#endif
ZOO_FN real real_exp(real x) { return ZOO_REAL(exp)(x); }
ZOO_FN real real_log(real x) { return ZOO_REAL(log)(x); }
ZOO_FN real real_log1p(real x) { return ZOO_REAL(log1p)(x); }
ZOO_FN real real_sin(real x) { return ZOO_REAL(sin)(x); }
ZOO_FN real real_cos(real x) { return ZOO_REAL(cos)(x); }
ZOO_FN real real_atan2(real y, real x) { return ZOO_REAL(atan2)(y, x); }
template <class T> ZOO_FN T real_square(T x) { return ZOO_REAL(square)(x); }
ZOO_FN real real_logaddexp0(real x) {
  real positive = x > real(0) ? x : real(0);
  return positive + real_log1p(real_exp(-zoo_abs(x)));
}
