// temporary
#include "simulation/simulation.hpp"
#include <cstdio>
#include <cstdlib>
#include <iostream>
using namespace leaselock::simulation;
int main(int argc, char** argv) {
    if (argc == 2) { auto r = carry_out(draw_plan(std::strtoull(argv[1],nullptr,10))); std::cout << describe(draw_plan(std::strtoull(argv[1],nullptr,10))) << "\n" << r.history << r.ended << "\n"; return 0; }
    std::size_t bytes=0, bad=0, diff=0;
    for (unsigned i = 0; i < 500; ++i) { auto r = carry_out(draw_plan(i)); bytes += r.history.size(); if(!r.ended) {++bad; std::cout<<"not ended "<<i<<"\n";} if (i%10==0) diff += carry_out(draw_plan(i)).history != r.history; }
    std::cout << bytes/500 << " bytes/seed " << bad << " not ended, differ " << diff << "\n";
}
