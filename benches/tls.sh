#!/bin/bash
# What TLS and checksums cost over loopback, beside what openssl encrypts in one thread. Usage: benches/tls.sh PATH-OF-MOONRAIL
M=$(realpath "$1"); D=$(mktemp -d); cd $D; export MOONRAIL_PATHS=tcp
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout ca.key -out ca.pem -subj /CN=authority -days 2 2>/dev/null
openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout one.key -out one.csr -subj /CN=one 2>/dev/null
printf 'subjectAltName=IP:127.0.0.1\n' > ext
openssl x509 -req -in one.csr -CA ca.pem -CAkey ca.key -CAcreateserial -out one.pem -days 2 -extfile ext 2>/dev/null
chmod 600 *.key; chmod 644 *.pem
echo "== openssl"; openssl speed -evp aes-256-gcm -bytes 16384 -seconds 1 2>/dev/null | tail -1
openssl speed -decrypt -evp aes-256-gcm -bytes 16384 -seconds 1 2>/dev/null | tail -1
for round in 1; do
for mode in clear checksum tls; do
  T=""; unset MOONRAIL_CHECKSUM
  [ $mode = tls ] && T="--tls-cert one.pem --tls-key one.key --tls-ca ca.pem"
  [ $mode = checksum ] && export MOONRAIL_CHECKSUM=1
  $M serve --size 256MiB --json $T > serve.json 2>serve.err & P=$!
  for i in $(seq 50); do [ -s serve.json ] && break; sleep 0.1; done
  S=$(python3 -c "import json;print(json.loads(open('serve.json').readline())['session'])")
  for op in write read; do
    for size in 64MiB:1 64KiB:128 64:1; do
      B=${size%:*}; N=${size#*:}
      $M bench --segment-id $S --operation $op --block-size $B --batch-size $N --threads 1 --duration 1 --buffer-size 256MiB --json $T > out.json 2>>err.txt
      python3 - "$mode" $op $size <<'P'
import json,sys
o=json.loads(open('out.json').read().strip().splitlines()[-1])
print(*sys.argv[1:], {k:v for k,v in o.items() if k in('throughput','bytes_per_second','latency_us','batches','seconds','p50_us','gb_per_second')} or o)
P
    done
  done
  kill -INT $P; wait $P 2>/dev/null
done; done
cat err.txt serve.err | head -5; rm -rf $D
